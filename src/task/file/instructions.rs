//! Instructions by name: those that a GPU is meant to execute, those allowed and those denied.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::super::error::TaskError;
use super::super::{PtxPolicy, Size, TargetInstruction};
use super::raw::{RawPolicy, RawTarget};
use super::{Checker, owned};
use crate::units::SmArch;

impl Checker<'_> {
    pub(super) fn targets(
        &self,
        raw: &BTreeMap<Spanned<String>, Vec<RawTarget>>,
        sizes: &[(Size, Range<usize>)],
    ) -> Result<BTreeMap<SmArch, Vec<TargetInstruction>>, TaskError> {
        let mut targets = BTreeMap::new();
        for (name, instructions) in raw {
            let arch: SmArch = name
                .get_ref()
                .parse()
                .map_err(|error| self.at(name.span(), error, ""))?;
            let mut checked = Vec::new();
            for instruction in instructions {
                self.mnemonic(&instruction.mnemonic)?;
                if let Some(at_least) = &instruction.at_least {
                    self.integer(at_least, sizes, |least, _| {
                        if least < 1 {
                            return Err("fewer than one execution asks for nothing".into());
                        }
                        Ok(())
                    })?;
                }
                checked.push(TargetInstruction {
                    mnemonic: instruction.mnemonic.get_ref().clone(),
                    at_least: instruction
                        .at_least
                        .as_ref()
                        .map(|text| text.get_ref().clone()),
                });
            }
            targets.insert(arch, checked);
        }
        Ok(targets)
    }

    pub(super) fn policy(&self, raw: &RawPolicy) -> Result<PtxPolicy, TaskError> {
        for prefix in raw.allow.iter().chain(&raw.deny) {
            self.mnemonic(prefix)?;
        }
        for denied in &raw.deny {
            if raw
                .allow
                .iter()
                .any(|allowed| allowed.get_ref() == denied.get_ref())
            {
                return Err(self.at(
                    denied.span(),
                    format_args!("`{}` is allowed and denied", denied.get_ref()),
                    "keep one",
                ));
            }
        }
        if raw.reason.is_empty()
            && let Some(first) = raw.allow.iter().chain(&raw.deny).next()
        {
            return Err(self.at(
                first.span(),
                "the policy gives no reason",
                "add `reason = \"…\"`: proposers are told it",
            ));
        }
        Ok(PtxPolicy {
            allow: owned(&raw.allow),
            deny: owned(&raw.deny),
            reason: raw.reason.clone(),
        })
    }

    fn mnemonic(&self, text: &Spanned<String>) -> Result<(), TaskError> {
        let ok = text.get_ref().starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .get_ref()
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._:".contains(&b));
        if ok {
            return Ok(());
        }
        Err(self.at(
            text.span(),
            format_args!("`{}` is no instruction's beginning", text.get_ref()),
            "write a mnemonic with its modifiers, such as `atom.global.add`",
        ))
    }
}
