//! A first-level cache's tags: 128-byte lines of four sectors, four ways, oldest out. It holds no data; it
//! only tells which sectors of a block's loads would have to be fetched.

const WAYS: usize = 4;
const LINE: u64 = 128;

#[derive(Clone, Copy)]
struct Way {
    line: u64,
    sectors: u8,
}

const EMPTY: Way = Way {
    line: u64::MAX,
    sectors: 0,
};

pub(super) struct Cache {
    sets: Vec<[Way; WAYS]>,
}

impl Cache {
    pub fn new(bytes: u64) -> Self {
        let sets = (bytes / (LINE * WAYS as u64)).max(1) as usize;
        Self {
            sets: vec![[EMPTY; WAYS]; sets],
        }
    }

    pub fn clear(&mut self) {
        self.sets.fill([EMPTY; WAYS]);
    }

    /// Looks up a 32-byte sector by number; `false`: it missed, and is there now.
    pub fn touch(&mut self, sector: u64) -> bool {
        let line = sector / 4;
        let bit = 1u8 << (sector % 4);
        // Strides of powers of two must not fall into one set.
        let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = hash as usize % self.sets.len();
        let set = &mut self.sets[index];
        match set.iter().position(|way| way.line == line) {
            Some(at) => {
                let hit = set[at].sectors & bit != 0;
                set[at].sectors |= bit;
                set[..=at].rotate_right(1);
                hit
            }
            None => {
                set.rotate_right(1);
                set[0] = Way { line, sectors: bit };
                false
            }
        }
    }
}
