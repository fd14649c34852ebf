//! NumPy's `.npy` format, as far as references need it: little-endian, C order, one array a file.
//! Pure: bytes in, bytes out.

use crate::source::DType;
use crate::task::element::{decode, decode_all};

const MAGIC: &[u8] = b"\x93NUMPY";

/// An array read from a file.
#[derive(Debug, PartialEq)]
pub(super) struct Array {
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub data: Vec<u8>,
}

impl Array {
    pub(super) fn values(&self) -> Vec<f64> {
        decode_all(self.dtype, &self.data)
    }
}

/// A file for a buffer. NumPy has no bfloat16: such a buffer is widened to float32, which is exact.
pub(super) fn write(dtype: DType, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let mut header = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        descriptor(dtype),
        extents.join(", ")
    );
    // The data starts at a multiple of 64 bytes; the header ends in a newline.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(
        ' ',
        unpadded.next_multiple_of(64) - unpadded,
    ));
    header.push('\n');
    let mut file = Vec::with_capacity(MAGIC.len() + 4 + header.len() + data.len());
    file.extend(MAGIC);
    file.extend([1, 0]);
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    match dtype {
        DType::Bf16 => {
            for element in data.chunks_exact(2) {
                file.extend((decode(dtype, element) as f32).to_le_bytes());
            }
        }
        DType::F64
        | DType::F32
        | DType::F16
        | DType::I32
        | DType::U32
        | DType::I64
        | DType::U64
        | DType::U8 => file.extend(data),
    }
    file
}

/// Reads a file; the error says what it lacks.
pub(super) fn read(file: &[u8]) -> Result<Array, String> {
    let rest = file
        .strip_prefix(MAGIC)
        .ok_or("not a .npy file: write it with numpy.save")?;
    let (header, data) = match rest {
        [1, _, low, high, rest @ ..] => {
            split(rest, usize::from(u16::from_le_bytes([*low, *high])))?
        }
        [2 | 3, _, a, b, c, d, rest @ ..] => {
            split(rest, u32::from_le_bytes([*a, *b, *c, *d]) as usize)?
        }
        _ => return Err("its .npy version is unknown".into()),
    };
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text")?;
    let field = |name: &str| -> Result<&str, String> {
        let at = header
            .find(&format!("'{name}':"))
            .ok_or_else(|| format!("its header has no {name}"))?;
        Ok(header[at + name.len() + 3..].trim_start())
    };
    if !field("fortran_order")?.starts_with("False") {
        return Err("it is in Fortran order: save numpy.ascontiguousarray(…)".into());
    }
    let described = field("descr")?;
    let dtype = DTYPES
        .into_iter()
        .find(|dtype| described.starts_with(&format!("'{}'", descriptor(*dtype))))
        .ok_or_else(|| {
            let shown: String = described.chars().take_while(|c| *c != ',').collect();
            format!("its type {shown} is not supported: save float64")
        })?;
    let shape = field("shape")?
        .strip_prefix('(')
        .and_then(|text| text.split_once(')'))
        .ok_or("its header has no shape")?
        .0
        .split(',')
        .map(str::trim)
        .filter(|extent| !extent.is_empty())
        .map(|extent| {
            extent
                .parse::<u64>()
                .map_err(|_| format!("its shape holds `{extent}`"))
        })
        .collect::<Result<Vec<u64>, _>>()?;
    let bytes = shape
        .iter()
        .try_fold(dtype.size(), |product, extent| product.checked_mul(*extent));
    if bytes != Some(data.len() as u64) {
        return Err(format!(
            "it holds {} bytes of data, shape {shape:?} does not",
            data.len()
        ));
    }
    Ok(Array {
        dtype,
        shape,
        data: data.to_vec(),
    })
}

/// Every type a file can hold.
const DTYPES: [DType; 8] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::U8,
];

fn descriptor(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "<f8",
        DType::F32 | DType::Bf16 => "<f4",
        DType::F16 => "<f2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::U8 => "|u1",
    }
}

fn split(rest: &[u8], at: usize) -> Result<(&[u8], &[u8]), String> {
    rest.split_at_checked(at)
        .ok_or_else(|| "it ends within its header".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for dtype in DTYPES {
            for shape in [vec![], vec![3], vec![2, 3], vec![4, 1, 5]] {
                let bytes = shape.iter().product::<u64>() * dtype.size();
                let data: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
                let file = write(dtype, &shape, &data);
                assert_eq!(read(&file), Ok(Array { dtype, shape, data }));
            }
        }
    }

    #[test]
    fn the_header_is_numpy_s_own() {
        let file = write(DType::F32, &[2, 3], &[0; 24]);
        let expected: &[u8] =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert!(file.starts_with(expected));
        assert_eq!(file.len(), 128 + 24);
    }

    #[test]
    fn bad_files_are_told() {
        let good = write(DType::F64, &[2], &[0; 16]);
        let text = |from: &str, to: &str| {
            let at = good
                .windows(from.len())
                .position(|w| w == from.as_bytes())
                .unwrap();
            let mut bad = good.clone();
            bad[at..at + to.len()].copy_from_slice(to.as_bytes());
            read(&bad).unwrap_err()
        };
        assert!(read(b"1.0 2.0").unwrap_err().contains("numpy.save"));
        assert!(read(&good[..40]).unwrap_err().contains("within its header"));
        assert!(
            read(&good[..good.len() - 1])
                .unwrap_err()
                .contains("15 bytes")
        );
        assert!(text("<f8", "<c8").contains("save float64"));
        assert!(text("False", "True ").contains("Fortran"));
        assert!(text("(2,)", "(x,)").contains("`x`"));
    }
}
