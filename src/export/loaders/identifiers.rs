//! Names for a loader's parameters that its language and its template leave free.

use std::collections::{BTreeMap, BTreeSet};

use super::super::formula::Language;

/// A name of each that the language and the templates leave free.
pub(super) fn identifiers<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    language: Language,
) -> BTreeMap<String, String> {
    let mut taken: BTreeSet<String> = names.clone().map(str::to_owned).collect();
    let mut out = BTreeMap::new();
    for name in names {
        let mut own = name.to_owned();
        while reserved(&own, language) || (own != name && taken.contains(&own)) {
            own.push('_');
        }
        taken.insert(own.clone());
        out.insert(name.to_owned(), own);
    }
    out
}

/// Words that a parameter cannot be called: the language's own and those the templates use.
fn reserved(name: &str, language: Language) -> bool {
    let words = match language {
        Language::Cpp => {
            "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t \
             char32_t class compl const const_cast constexpr continue decltype default delete do double \
             dynamic_cast else enum explicit export extern false float for friend goto if inline int long \
             mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public \
             register reinterpret_cast return short signed sizeof static static_assert static_cast struct \
             switch template this thread_local throw true try typedef typeid typename union unsigned using \
             virtual void volatile wchar_t while xor xor_eq errno stdin stdout stderr main argc argv std \
             extent ranged bytes floor_div floor_mod plan now step kernel stream scope maps args driver \
             Kernel Plan Launch Driver Error Stream DevicePointer divisor check reserve raise release launch \
             unit config cluster free allocate synchronize int64_t uint32_t uint64_t size_t"
        }
        Language::Rust => {
            "as async await break const continue crate dyn else enum extern false fn for gen if impl in \
             let loop match mod move mut pub ref return self Self static struct super trait true try type \
             unsafe use where while abstract become box do final macro override priv typeof unsized \
             virtual yield extent ranged bytes floor_div floor_mod plan now step stream scope maps args \
             check sys std Ok Err Some None Kernel Plan Launch Error"
        }
        Language::Python => {
            "False None True and as assert async await break class continue def del elif else except \
             finally for from global if import in is lambda nonlocal not or pass raise return try while \
             with yield match case type self int max min extent ranged floor_div floor_mod plan now \
             stream maps args ctypes os device cubin"
        }
    };
    name.starts_with("argument_") || words.split_whitespace().any(|word| word == name)
}
