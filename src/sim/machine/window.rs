//! Generic addresses: each state space but global has a window of 4 GiB; what lies outside the windows is
//! global.

use super::super::op::Space;

const SHARED: u64 = 0x1_0000_0000;
const LOCAL: u64 = 0x2_0000_0000;
const CONST: u64 = 0x3_0000_0000;
const PARAM: u64 = 0x4_0000_0000;

/// First generic address of a space.
pub(crate) fn base(space: Space) -> u64 {
    match space {
        Space::Global | Space::Generic => 0,
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Const => CONST,
        Space::Param => PARAM,
    }
}

/// The space a generic address lies in.
pub(crate) fn of(address: u64) -> Space {
    match address >> 32 {
        1 => Space::Shared,
        2 => Space::Local,
        3 => Space::Const,
        4 => Space::Param,
        _ => Space::Global,
    }
}
