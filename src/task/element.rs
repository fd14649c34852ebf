//! Elements between bytes and numbers, for every element type. Pure.

use half::{bf16, f16};

use crate::source::DType;

/// The value of one little-endian element; `bytes` holds exactly one.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F64 => f64::from_le_bytes(array(bytes)),
        DType::F32 => f64::from(f32::from_le_bytes(array(bytes))),
        DType::F16 => f16::from_le_bytes(array(bytes)).to_f64(),
        DType::Bf16 => bf16::from_le_bytes(array(bytes)).to_f64(),
        DType::I32 => f64::from(i32::from_le_bytes(array(bytes))),
        DType::U32 => f64::from(u32::from_le_bytes(array(bytes))),
        DType::I64 => i64::from_le_bytes(array(bytes)) as f64,
        DType::U64 => u64::from_le_bytes(array(bytes)) as f64,
        DType::U8 => f64::from(bytes[0]),
    }
}

/// The values of a buffer.
pub(super) fn decode_all(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(dtype.size() as usize)
        .map(|element| decode(dtype, element))
        .collect()
}

/// The element nearest to `value`, appended little-endian; integers saturate.
pub(super) fn encode(dtype: DType, value: f64, out: &mut Vec<u8>) {
    match dtype {
        DType::F64 => out.extend(value.to_le_bytes()),
        DType::F32 => out.extend((value as f32).to_le_bytes()),
        DType::F16 => out.extend(f16::from_f64(value).to_le_bytes()),
        DType::Bf16 => out.extend(bf16::from_f64(value).to_le_bytes()),
        DType::I32 => out.extend((value.round_ties_even() as i32).to_le_bytes()),
        DType::U32 => out.extend((value.round_ties_even() as u32).to_le_bytes()),
        DType::I64 => out.extend((value.round_ties_even() as i64).to_le_bytes()),
        DType::U64 => out.extend((value.round_ties_even() as u64).to_le_bytes()),
        DType::U8 => out.push(value.round_ties_even() as u8),
    }
}

/// `value` rounded to the type.
pub(super) fn round(dtype: DType, value: f64) -> f64 {
    let mut bytes = Vec::with_capacity(8);
    encode(dtype, value, &mut bytes);
    decode(dtype, &bytes)
}

/// Unit roundoff: half the distance from 1 to the next number. Zero for integers.
pub(super) fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-53),
        DType::F32 => 2f64.powi(-24),
        DType::F16 => 2f64.powi(-11),
        DType::Bf16 => 2f64.powi(-8),
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 => 0.0,
    }
}

/// The smallest positive number of the type. Zero for integers.
pub(super) fn smallest_subnormal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::from_bits(1),
        DType::F32 => 2f64.powi(-149),
        DType::F16 => 2f64.powi(-24),
        DType::Bf16 => 2f64.powi(-133),
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 => 0.0,
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
