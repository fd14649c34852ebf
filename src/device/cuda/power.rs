//! The driver's counter of power capping, through NVML. It only reads.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::PerformancePolicy;

/// A GPU's counter.
pub struct PowerCounter {
    nvml: Nvml,
    pci_bus_id: String,
}

impl PowerCounter {
    /// The counter of the GPU plugged in there; an error says why it cannot be read.
    pub fn open(pci_bus_id: &str) -> Result<Self, String> {
        let nvml = Nvml::init().map_err(|error| format!("NVML does not load: {error}"))?;
        let counter = Self {
            nvml,
            pci_bus_id: pci_bus_id.to_owned(),
        };
        counter.micros()?;
        Ok(counter)
    }

    /// Microseconds so far for which power held the clock down.
    pub fn micros(&self) -> Result<u64, String> {
        self.nvml
            .device_by_pci_bus_id(self.pci_bus_id.as_str())
            .and_then(|device| device.violation_status(PerformancePolicy::Power))
            .map(|status| status.violation_time / 1000)
            .map_err(|error| format!("NVML's power counter: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_it_says_so() {
        if let Err(message) = PowerCounter::open("0000:00:00.0") {
            assert!(message.contains("NVML"), "{message}");
        }
    }
}
