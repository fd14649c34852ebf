//! Every architecture that the kernel is meant for: whether ptxas takes its PTX, and, where a GPU of that
//! kind is here, how long the cubin takes and what the driver's own compiler makes of the PTX.

use super::judged::refusal;
use super::{Bench, Bundle, Check, Outcome};
use crate::device::RigError;
use crate::evaluate::Aim;
use crate::evaluate::ptxas::{Assembler, Cubin};
use crate::ptx::ir::{Item, Module};
use crate::task::Task;
use crate::units::{SmArch, SmSuffix};
use crate::verdict::{Resources, spilled};

/// A check for each architecture: those of `named`, or the defaults as far as the task and the PTX allow.
/// `benches` time them, where the files are what was certified: one for each GPU.
pub fn architectures(
    bundle: &Bundle,
    named: &[SmArch],
    task: Option<&Task>,
    assembler: &Assembler,
    benches: &[Bench<'_>],
) -> Result<Vec<Check>, RigError> {
    let Some(ptx) = &bundle.ptx else {
        let why = "kernel.ptx is not here as text";
        let none = |wanted: Wanted| check(wanted, Outcome::NotDone, why.to_owned());
        return Ok(Wanted::list(named, None).into_iter().map(none).collect());
    };
    let target = target(ptx);
    Wanted::list(named, target)
        .into_iter()
        .map(|wanted| {
            if !wanted.named
                && let Some(why) = left_out(wanted.arch, target, task)
            {
                return Ok(check(wanted, Outcome::NotDone, why));
            }
            match assembler.assemble(ptx, wanted.arch, &[])?.into_cubin(Some) {
                Err(verdict) => {
                    let outcome = if wanted.named {
                        Outcome::Fail
                    } else {
                        Outcome::NotDone
                    };
                    let detail = format!("not assembled: {}", refusal(&verdict));
                    Ok(check(wanted, outcome, detail))
                }
                Ok(cubin) => timed(wanted, ptx, &cubin, benches),
            }
        })
        .collect()
}

/// Looked at where none is named.
const DEFAULT_ARCHITECTURES: [SmArch; 6] = [
    portable(80),
    portable(86),
    portable(89),
    portable(90),
    portable(100),
    portable(120),
];

/// An architecture to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    arch: SmArch,
    /// It was named: it must pass.
    named: bool,
}

const fn portable(number: u16) -> SmArch {
    SmArch {
        number,
        suffix: SmSuffix::Portable,
    }
}

impl Wanted {
    /// Those named, else the defaults. Of those, the one that PTX for an architecture's own instructions is
    /// written for stands in for the portable one of its number.
    fn list(named: &[SmArch], target: Option<SmArch>) -> Vec<Self> {
        if !named.is_empty() {
            let one = |&arch| Self { arch, named: true };
            return named.iter().map(one).collect();
        }
        DEFAULT_ARCHITECTURES
            .iter()
            .map(|&arch| Self {
                arch: target
                    .filter(|target| target.number == arch.number)
                    .unwrap_or(arch),
                named: false,
            })
            .collect()
    }
}

fn check(wanted: Wanted, outcome: Outcome, detail: String) -> Check {
    let name = wanted.arch.to_string();
    if wanted.named {
        Check::required(&name, outcome, detail)
    } else {
        Check::told(&name, outcome, detail)
    }
}

/// What an assembled architecture gives on each GPU of its kind that is here. Wrong answers fail it, named
/// or not.
fn timed(
    wanted: Wanted,
    ptx: &str,
    cubin: &Cubin,
    benches: &[Bench<'_>],
) -> Result<Check, RigError> {
    let mut detail = assembled(&cubin.resources);
    let (mut here, mut whole, mut wrong) = (false, true, false);
    let fitting = |bench: &&Bench<'_>| !bench.simulated && wanted.arch.runs_on(bench.gpu.arch);
    for bench in benches.iter().filter(fitting) {
        here = true;
        if benches.len() > 1 {
            detail.push_str(&format!("; on {} ({})", bench.device, bench.gpu.name));
        }
        let mut images: Vec<(&str, &[u8])> = vec![("cubin", &cubin.bytes)];
        // the driver compiles for its own GPU, whatever was assembled for
        if wanted.arch.number == bench.gpu.arch.number {
            images.push(("PTX compiled by the driver", ptx.as_bytes()));
        }
        for (what, image) in images {
            let told = match bench.verdict(Aim::Variant, image, &cubin.resources) {
                Ok(verdict) => match verdict.measurement() {
                    Some(measurement) => {
                        let time = &measurement.time;
                        format!("{} {}", time.nanos(), time.label())
                    }
                    None => {
                        wrong = true;
                        refusal(&verdict)
                    }
                },
                // a driver that is too old does not take every module
                Err(RigError::Device { message, .. }) => {
                    whole = false;
                    format!("not measured: {message}")
                }
                Err(error) => return Err(error),
            };
            detail.push_str(&format!("; {what} {told}"));
        }
    }
    if !here {
        detail.push_str("; not measured: no such GPU judges here");
    }
    Ok(match (wrong, whole) {
        (true, _) => Check::required(&wanted.arch.to_string(), Outcome::Fail, detail),
        (false, true) => check(wanted, Outcome::Pass, detail),
        (false, false) => check(wanted, Outcome::NotDone, detail),
    })
}

fn assembled(resources: &[Resources]) -> String {
    let registers = resources.iter().map(|entry| entry.registers).max();
    format!(
        "assembled: {} registers, {} spilled",
        registers.unwrap_or_default(),
        spilled(resources)
    )
}

/// Why an architecture that nobody named is not looked at.
fn left_out(arch: SmArch, target: Option<SmArch>, task: Option<&Task>) -> Option<String> {
    let target = target?;
    if !takes(arch, target) {
        return Some(format!("kernel.ptx is written for {target}"));
    }
    let asked: Vec<SmArch> = task?.targets.keys().copied().collect();
    if asked.is_empty() || asked.iter().any(|asked| asked.number == arch.number) {
        return None;
    }
    let list: Vec<String> = asked.iter().map(ToString::to_string).collect();
    Some(format!(
        "the task asks for instructions of {}",
        list.join(", ")
    ))
}

/// Whether PTX of `.target target` may be assembled for `arch`.
fn takes(arch: SmArch, target: SmArch) -> bool {
    match target.suffix {
        SmSuffix::Portable => arch.number >= target.number,
        SmSuffix::Specific => arch == target,
        SmSuffix::Family => {
            arch.number / 10 == target.number / 10
                && arch.number >= target.number
                && arch.suffix != SmSuffix::Portable
        }
    }
}

/// What `.target` names.
fn target(ptx: &str) -> Option<SmArch> {
    let module: Module = crate::ptx::parse(ptx).ok()?;
    module.items.iter().find_map(|item| match item {
        Item::Directive(directive) if directive.name == ".target" => {
            directive.arguments.split(',').next()?.trim().parse().ok()
        }
        Item::Directive(_) | Item::Variable(_) | Item::Function(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(text: &str) -> SmArch {
        text.parse().expect("an architecture")
    }

    #[test]
    fn portable_ptx_goes_up_and_specific_ptx_nowhere() {
        let ptx = |target| format!(".version 8.0\n.target {target}\n.address_size 64\n");
        for (written, taken) in [
            ("sm_80", "sm_80 sm_86 sm_89 sm_90 sm_100 sm_120"),
            ("sm_89", "sm_89 sm_90 sm_100 sm_120"),
            ("sm_90a", "sm_90a"),
            ("sm_100f", "sm_100f"),
        ] {
            let target = target(&ptx(written));
            assert_eq!(target, Some(arch(written)));
            let left: Vec<String> = Wanted::list(&[], target)
                .into_iter()
                .filter(|wanted| left_out(wanted.arch, target, None).is_none())
                .map(|wanted| wanted.arch.to_string())
                .collect();
            assert_eq!(left.join(" "), taken);
        }
    }

    #[test]
    fn what_is_named_is_looked_at_whatever_the_ptx_says() {
        let named = [arch("sm_75"), arch("sm_90a")];
        let list = Wanted::list(&named, Some(arch("sm_90a")));
        assert_eq!(
            list.iter().map(|wanted| wanted.arch).collect::<Vec<_>>(),
            named
        );
        assert!(list.iter().all(|wanted| wanted.named));
    }
}
