//! Types and bounds of the numbers that a launch passes, as each language spells them.

use super::super::formula::Language;
use crate::ptx::ir::Variable;

/// An integer `.param`: the least and largest value that fits, and the loader's type of its width.
pub(super) fn integer_type(
    param: &Variable,
    language: Language,
) -> Result<(i64, i64, &'static str), String> {
    let (low, high, [cpp, rust, python]) = match scalar(param)? {
        ".u8" => (0, u8::MAX.into(), ["uint8_t", "u8", "c_uint8"]),
        ".s8" => (i8::MIN.into(), i8::MAX.into(), ["uint8_t", "u8", "c_uint8"]),
        ".b8" => (i8::MIN.into(), u8::MAX.into(), ["uint8_t", "u8", "c_uint8"]),
        ".u16" => (0, u16::MAX.into(), ["uint16_t", "u16", "c_uint16"]),
        ".s16" => (
            i16::MIN.into(),
            i16::MAX.into(),
            ["uint16_t", "u16", "c_uint16"],
        ),
        ".b16" => (
            i16::MIN.into(),
            u16::MAX.into(),
            ["uint16_t", "u16", "c_uint16"],
        ),
        ".u32" => (0, u32::MAX.into(), ["uint32_t", "u32", "c_uint32"]),
        ".s32" => (
            i32::MIN.into(),
            i32::MAX.into(),
            ["uint32_t", "u32", "c_uint32"],
        ),
        ".b32" => (
            i32::MIN.into(),
            u32::MAX.into(),
            ["uint32_t", "u32", "c_uint32"],
        ),
        ".u64" => (0, i64::MAX, ["uint64_t", "u64", "c_uint64"]),
        ".s64" | ".b64" => (i64::MIN, i64::MAX, ["uint64_t", "u64", "c_uint64"]),
        other => return Err(format!("no integer fits a {other} parameter")),
    };
    let ty = match language {
        Language::Cpp => cpp,
        Language::Rust => rust,
        Language::Python => python,
    };
    Ok((low, high, ty))
}

pub(super) fn float_type(param: &Variable, language: Language) -> Result<&'static str, String> {
    let single = match scalar(param)? {
        ".f32" | ".b32" => true,
        ".f64" | ".b64" => false,
        other => return Err(format!("the loaders pass no float as a {other} parameter")),
    };
    Ok(match (language, single) {
        (Language::Cpp, true) => "float",
        (Language::Cpp, false) => "double",
        (Language::Rust, true) => "f32",
        (Language::Rust, false) => "f64",
        (Language::Python, true) => "c_float",
        (Language::Python, false) => "c_double",
    })
}

pub(super) fn bound(value: i64, language: Language) -> String {
    match (language, value) {
        (Language::Cpp, i64::MIN) => "INT64_MIN".to_owned(),
        (Language::Cpp, i64::MAX) => "INT64_MAX".to_owned(),
        (Language::Cpp, _) => format!("INT64_C({value})"),
        (Language::Rust, i64::MIN) => "i64::MIN".to_owned(),
        (Language::Rust, i64::MAX) => "i64::MAX".to_owned(),
        (Language::Rust | Language::Python, _) => value.to_string(),
    }
}

/// The type of a `.param` that is no array.
fn scalar(param: &Variable) -> Result<&str, String> {
    let array = param.names.iter().any(|name| !name.dimensions.is_empty());
    if array || param.vector.is_some() {
        return Err("the `.param` is an array, not a number".to_owned());
    }
    Ok(&param.ty)
}
