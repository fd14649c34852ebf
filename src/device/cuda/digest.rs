//! The hash by which the worker compares device memory with itself and with what was uploaded: order
//! matters, and a secret seed keeps a kernel from forging it. `tools.ptx` computes the same on the GPU.

/// Adds to a digest: `bytes` start at word `first` of the buffer; the last word is padded with zeros.
/// Start with 0; the parts of a buffer may come in any order.
pub fn digest(seed: u64, first: u64, bytes: &[u8]) -> u64 {
    bytes
        .chunks(8)
        .zip(first..)
        .map(|(chunk, index)| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(seed, index, u64::from_le_bytes(word))
        })
        .fold(0, u64::wrapping_add)
}

/// A guard byte: what stands `offset` bytes into a region's surroundings.
pub fn canary(seed: u64, offset: u64) -> u8 {
    (mix(seed, offset / 8, 0) >> (offset % 8 * 8)) as u8
}

fn mix(seed: u64, index: u64, word: u64) -> u64 {
    let step = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut z = (word ^ seed).wrapping_add(step);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1003).collect();
        let whole = digest(7, 0, &bytes);
        let parts = digest(7, 0, &bytes[..512]).wrapping_add(digest(7, 64, &bytes[512..]));
        assert_eq!(whole, parts);
    }

    #[test]
    fn order_and_seed_matter() {
        let a = [1u64, 2].map(u64::to_le_bytes).concat();
        let b = [2u64, 1].map(u64::to_le_bytes).concat();
        assert_ne!(digest(7, 0, &a), digest(7, 0, &b));
        assert_ne!(digest(7, 0, &a), digest(8, 0, &a));
    }

    /// The first output of splitmix64 from state 0, as published with the generator.
    #[test]
    fn mixes_as_splitmix64_does() {
        assert_eq!(mix(0, 0, 0), 0xE220_A839_7B1D_CDAF);
    }
}
