//! A warp: its registers and the groups of lanes that share a program counter. Lanes part at divergent
//! branches and meet again at the lowest program counter; no lane ever waits for another one that waits
//! for it.

use super::super::op::{FrameLayout, Init, Pc, Program, Special};
use super::WARP_TURN;
use super::asynchronous::Products;
use super::regs::{LANES, Narrow, Regs, Wide};

/// What unwritten registers hold: a NaN in every float format, and no useful address.
pub(super) const POISON: u64 = 0x7fa5_a5a5_7fa5_a5a5;

/// Where a call's registers and stack begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub narrow: usize,
    pub wide: usize,
    pub preds: usize,
    /// Bytes into the thread's stack.
    pub stack: u32,
    pub function: usize,
}

/// A return address: the frame to go back to and the `call`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub frame: Frame,
    pub pc: Pc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// At a barrier of this number.
    Barrier(u8),
    /// At a warp-wide operation, for lanes that it names.
    Converging,
    /// For a phase of the mbarrier at this shared address.
    Mbarrier(u32),
    /// For the warpgroup's other warps to commit their part of products up to this epoch.
    Warpgroup(u32),
    /// For this many registers a thread.
    Registers(u32),
    /// At the cluster's barrier.
    Cluster,
}

impl State {
    /// Only something outside the warp can let it go on.
    pub fn blocked(self) -> bool {
        match self {
            Self::Running | Self::Converging => false,
            Self::Barrier(_)
            | Self::Mbarrier(_)
            | Self::Warpgroup(_)
            | Self::Registers(_)
            | Self::Cluster => true,
        }
    }
}

/// Lanes that run together.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub pc: Pc,
    pub mask: u32,
    pub frame: Frame,
    pub callers: Vec<Caller>,
    pub state: State,
}

/// Geometry that special registers tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub block: [u32; 3],
    pub grid: [u32; 3],
    /// Blocks of a cluster.
    pub cluster: [u32; 3],
    /// Of the block in its cluster.
    pub rank: u32,
    pub ntid: [u32; 3],
    pub warp: usize,
    pub warps: usize,
    pub sm: u32,
    pub sms: u32,
    pub dynamic_base: u32,
    pub dynamic_bytes: u32,
    pub shared_bytes: u32,
}

#[derive(Default)]
pub(crate) struct Warp {
    pub narrow: Vec<Narrow>,
    pub wide: Vec<Wide>,
    pub preds: Vec<u32>,
    /// Carry flags, one bit a lane.
    pub carry: u32,
    /// The thread's stack: local variables and parameters, one row a word.
    pub stack: Vec<Narrow>,
    /// Lanes that wrote each word of it.
    pub stack_defined: Vec<u32>,
    pub fragments: Vec<Fragment>,
    /// Lanes that have not exited.
    pub live: u32,
    /// Run the highest program counter instead of the lowest: lets a spinning group's partner through.
    pub reversed: bool,
    /// Instructions executed in turns that ended with the lanes parted.
    parted: u64,
    /// Instructions executed.
    pub executed: u64,
    /// Products under way; their registers are not to be touched.
    pub products: Products,
}

impl Warp {
    /// Begins a block.
    pub fn begin(&mut self, program: &Program, live: u32, place: &Place) {
        self.carry = 0;
        self.live = live;
        self.reversed = false;
        self.parted = 0;
        self.executed = 0;
        self.narrow.clear();
        self.wide.clear();
        self.preds.clear();
        self.stack.clear();
        self.stack_defined.clear();
        self.fragments.clear();
        let frame = Frame::default();
        self.enter(program, frame, live, place);
        if live != 0 {
            self.fragments.push(Fragment {
                pc: program.functions[0].entry,
                mask: live,
                frame,
                callers: Vec::new(),
                state: State::Running,
            });
        }
    }

    /// Makes a frame's registers and stack for the lanes of `mask`.
    pub fn enter(&mut self, program: &Program, frame: Frame, mask: u32, place: &Place) {
        let layout = &program.functions[frame.function];
        grow(
            &mut self.narrow,
            frame.narrow + layout.narrow,
            [POISON as u32; LANES],
        );
        grow(&mut self.wide, frame.wide + layout.wide, [POISON; LANES]);
        grow(&mut self.preds, frame.preds + layout.predicates, 0);
        let words = ((frame.stack + layout.stack) as usize).div_ceil(4);
        grow(&mut self.stack, words, [POISON as u32; LANES]);
        grow(&mut self.stack_defined, words, 0);
        for defined in &mut self.stack_defined[frame.stack as usize / 4..words] {
            *defined &= !mask;
        }
        self.initialise(layout, frame, mask, place);
    }

    fn initialise(&mut self, layout: &FrameLayout, frame: Frame, mask: u32, place: &Place) {
        for &(reg, init) in &layout.init {
            let values: Wide = match init {
                Init::Const32(value) => [u64::from(value); LANES],
                Init::Const64(value) => [value; LANES],
                Init::DynamicShared | Init::DynamicSharedWide => {
                    [u64::from(place.dynamic_base); LANES]
                }
                Init::Special(special) => {
                    std::array::from_fn(|lane| u64::from(place.special(special, lane)))
                }
            };
            self.regs(frame).set_any(mask, reg, &values);
        }
    }

    /// A turn of `executed` instructions is over. Groups of lanes that part for long, or poll, may wait for each
    /// other: then the next turn is another group's.
    pub fn tire(&mut self, executed: u64, polls: bool) {
        self.parted = if self.fragments.len() > 1 {
            self.parted + executed
        } else {
            0
        };
        if self.parted >= WARP_TURN || polls && self.parted > 0 {
            self.reversed ^= true;
            self.parted = 0;
        }
    }

    #[inline(always)]
    pub fn regs(&mut self, frame: Frame) -> Regs<'_> {
        Regs {
            narrow: &mut self.narrow[frame.narrow..],
            wide: &mut self.wide[frame.wide..],
            preds: &mut self.preds[frame.preds..],
        }
    }

    /// Joins groups that stand at the same place, then names the one to run and the program counter at
    /// which it must look up again.
    pub fn choose(&mut self) -> Option<(usize, Pc)> {
        if self.fragments.len() > 1 {
            self.join();
        }
        let runnable = |f: &&Fragment| f.state == State::Running;
        let depth = self
            .fragments
            .iter()
            .filter(runnable)
            .map(|f| f.callers.len())
            .max()?;
        let at_depth = || {
            self.fragments
                .iter()
                .enumerate()
                .filter(move |(_, f)| f.state == State::Running && f.callers.len() == depth)
        };
        let chosen = if self.reversed {
            at_depth().max_by_key(|(_, f)| f.pc)
        } else {
            at_depth().min_by_key(|(_, f)| f.pc)
        };
        let (index, fragment) = chosen?;
        // Waiting groups count too: a running one may be what they wait for.
        let stop = self
            .fragments
            .iter()
            .filter(|f| f.callers.len() == depth && f.pc > fragment.pc && !f.state.blocked())
            .map(|f| f.pc)
            .min()
            .unwrap_or(Pc::MAX);
        Some((index, stop))
    }

    fn join(&mut self) {
        self.fragments.retain(|f| f.mask != 0);
        let mut index = 0;
        while index < self.fragments.len() {
            let mut other = index + 1;
            while other < self.fragments.len() {
                let (a, b) = (&self.fragments[index], &self.fragments[other]);
                let meets = a.pc == b.pc
                    && !a.state.blocked()
                    && !b.state.blocked()
                    && a.frame == b.frame
                    && a.callers == b.callers;
                if meets {
                    let mask = b.mask;
                    self.fragments[index].mask |= mask;
                    self.fragments[index].state = State::Running;
                    self.fragments.swap_remove(other);
                } else {
                    other += 1;
                }
            }
            index += 1;
        }
    }
}

fn grow<T: Clone>(rows: &mut Vec<T>, length: usize, value: T) {
    if rows.len() < length {
        rows.resize(length, value);
    }
}

impl Place {
    fn cluster_of(&self, axis: u8) -> u32 {
        self.cluster[usize::from(axis)].max(1)
    }

    fn special(&self, special: Special, lane: usize) -> u32 {
        let bit = 1u32 << lane;
        let thread = (self.warp * LANES + lane) as u32;
        let [x, y, _] = self.ntid;
        match special {
            Special::Tid(0) => thread % x,
            Special::Tid(1) => thread / x % y,
            Special::Tid(_) => thread / (x * y),
            Special::Ntid(axis) => self.ntid[usize::from(axis)],
            Special::Ctaid(axis) => self.block[usize::from(axis)],
            Special::Nctaid(axis) => self.grid[usize::from(axis)],
            Special::LaneId => lane as u32,
            Special::WarpId => self.warp as u32,
            Special::NWarpId => self.warps as u32,
            Special::SmId => self.sm,
            Special::NSmId => self.sms,
            Special::GridId => 0,
            Special::ClusterCtaid(axis) => self.block[usize::from(axis)] % self.cluster_of(axis),
            Special::ClusterNctaid(axis) => self.cluster_of(axis),
            Special::ClusterRank => self.rank,
            Special::ClusterSize => self.cluster.iter().product(),
            Special::Clusterid(axis) => self.block[usize::from(axis)] / self.cluster_of(axis),
            Special::Nclusterid(axis) => self.grid[usize::from(axis)] / self.cluster_of(axis),
            Special::LaneMaskEq => bit,
            Special::LaneMaskLt => bit - 1,
            Special::LaneMaskLe => (bit - 1) | bit,
            Special::LaneMaskGt => !((bit - 1) | bit),
            Special::LaneMaskGe => !(bit - 1),
            Special::DynamicSharedSize => self.dynamic_bytes,
            Special::TotalSharedSize => self.shared_bytes,
        }
    }
}
