//! The table of GPUs that the simulator can stand for: `gpus.toml`, embedded. It measures nothing.

use super::Gpu;

/// Embedded at build time.
const TABLE: &str = include_str!("gpus.toml");

#[derive(serde::Deserialize)]
struct Table {
    gpu: Vec<Gpu>,
}

/// No GPU of that name.
#[derive(Debug, thiserror::Error)]
#[error("no GPU matches `{asked}`; known: {known}")]
pub struct UnknownGpu {
    asked: String,
    known: String,
}

impl Gpu {
    /// All GPUs of the table.
    pub fn all() -> Vec<Self> {
        toml::from_str::<Table>(TABLE)
            .expect("invariant: the embedded table of GPUs parses, a test says so")
            .gpu
    }

    /// The GPU whose name contains `name`, whatever the case: `h200`, `RTX 4090`.
    ///
    /// # Errors
    /// When none does; the message lists those known.
    pub fn named(name: &str) -> Result<Self, UnknownGpu> {
        let key = |text: &str| text.to_lowercase().replace([' ', '-', '_'], "");
        let wanted = key(name);
        let mut all = Self::all();
        match all.iter().position(|gpu| key(&gpu.name).contains(&wanted)) {
            Some(at) => Ok(all.swap_remove(at)),
            None => Err(UnknownGpu {
                asked: name.to_owned(),
                known: all
                    .into_iter()
                    .map(|gpu| gpu.name)
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
    }
}

/// The H200, the first of the table.
impl Default for Gpu {
    fn default() -> Self {
        Self::all().swap_remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_find_their_gpu() {
        for (short, full) in [
            ("h200", "NVIDIA H200"),
            ("H100", "NVIDIA H100 80GB HBM3"),
            ("a100", "NVIDIA A100-SXM4-80GB"),
            ("rtx-4090", "NVIDIA GeForce RTX 4090"),
            ("B200", "NVIDIA B200"),
        ] {
            assert_eq!(Gpu::named(short).unwrap().name, full);
        }
        assert_eq!(Gpu::default().name, "NVIDIA H200");
        assert!(
            Gpu::named("V100")
                .unwrap_err()
                .to_string()
                .contains("NVIDIA B200")
        );
    }
}
