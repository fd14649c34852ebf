//! The pipeline without verification: what the device's cost model expects of a setting. Nothing here judges.

use super::Pipeline;
use crate::device::{RigError, Timing};
use crate::source::{Point, Source};
use crate::verdict::Estimate;

impl Pipeline {
    /// What the device gives for the time of a setting at the headline size, unverified.
    pub fn estimate(&self, source: &Source, point: &Point) -> Result<Estimate, RigError> {
        let ready = match self.ready(source, point)? {
            Ok(ready) => ready,
            Err(_refused) => return Ok(Estimate::Refused),
        };
        let job = ready.job(&self.timed_buffers);
        Ok(match self.settings.device.time(&job)? {
            Timing::Timed(timed) => Estimate::Time(timed.time.nanos()),
            Timing::Refused(_) => Estimate::Refused,
            Timing::Faulted(_) | Timing::Hung(_) => Estimate::Unknown,
        })
    }
}
