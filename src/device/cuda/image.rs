//! Whether bytes may be given to the driver as a module: it trusts what a header says.

/// Whether the section table that an ELF header announces lies within the image.
pub fn is_whole_elf(image: &[u8]) -> bool {
    let number = |at: usize, width: usize| -> Option<u64> {
        let bytes = image.get(at..at + width)?;
        Some(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    };
    // e_shoff, e_shentsize, e_shnum of a 64-bit header
    let end = || number(0x28, 8)?.checked_add(number(0x3a, 2)? * number(0x3c, 2)?);
    image.starts_with(b"\x7fELF\x02") && end().is_some_and(|end| end <= image.len() as u64)
}

/// Whether it is PTX text: the driver reads it up to a zero byte.
pub fn is_ptx(image: &[u8]) -> bool {
    std::str::from_utf8(image).is_ok_and(|text| text.contains(".version") && !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header whose section table, of two entries, starts at byte 64.
    fn elf() -> Vec<u8> {
        let mut elf = vec![0; 64 + 2 * 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[0x28] = 64;
        elf[0x3a] = 64;
        elf[0x3c] = 2;
        elf
    }

    #[test]
    fn a_cubin_is_whole_or_refused() {
        let elf = elf();
        assert!(is_whole_elf(&elf));
        for length in 0..elf.len() {
            assert!(!is_whole_elf(&elf[..length]), "cut to {length}");
        }
        let mut huge = elf.clone();
        huge[0x28..0x30].fill(0xff);
        assert!(!is_whole_elf(&huge));
    }

    #[test]
    fn text_is_ptx_only_with_a_version_and_without_zeros() {
        assert!(is_ptx(b".version 8.0\n.target sm_90"));
        assert!(!is_ptx(b"PASSED"));
        assert!(!is_ptx(b".version 8.0\0"));
        assert!(!is_ptx(b".version \xff"));
    }
}
