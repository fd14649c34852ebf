//! Several equal GPUs of one host as one device: each job goes to one that is free.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::link::WorkerCommand;
use super::{CudaDevice, Options};
use crate::device::{About, Device, Execution, Gpu, Job, Reserved, RigError, Timing};

/// Equal GPUs, each with its worker.
pub struct CudaPool {
    devices: Vec<CudaDevice>,
    rota: Mutex<Rota>,
    changed: Condvar,
}

struct Rota {
    /// GPUs that wait for work.
    free: Vec<usize>,
    /// GPUs that are not given up.
    healthy: usize,
}

impl CudaPool {
    /// Opens the GPUs numbered; an empty list opens all there are. They must be of one kind, since times
    /// on different GPUs do not compare.
    pub fn open(
        ordinals: &[u32],
        command: &WorkerCommand,
        options: &Options,
    ) -> Result<Self, RigError> {
        if let Some(twice) = (1..ordinals.len()).find(|&i| ordinals[..i].contains(&ordinals[i])) {
            return Err(RigError::Device {
                device: format!("cuda:{}", ordinals[twice]),
                message: "it is named twice; one worker times on a GPU at a time".to_owned(),
            });
        }
        let mut devices = Vec::new();
        if ordinals.is_empty() {
            devices.push(CudaDevice::open(0, command.clone(), options.clone())?);
            for ordinal in 1..devices[0].ready().gpu_count {
                devices.push(CudaDevice::open(ordinal, command.clone(), options.clone())?);
            }
        } else {
            for &ordinal in ordinals {
                devices.push(CudaDevice::open(ordinal, command.clone(), options.clone())?);
            }
        }
        let first = devices[0].gpu().name.clone();
        if let Some(other) = devices.iter().find(|d| d.gpu().name != first) {
            return Err(other.broken(format!(
                "it is a {}, another is a {first}; times on different GPUs do not compare: choose one kind \
                 (--device cuda:N,M)",
                other.gpu().name
            )));
        }
        Ok(Self {
            rota: Mutex::new(Rota {
                free: (0..devices.len()).rev().collect(),
                healthy: devices.len(),
            }),
            devices,
            changed: Condvar::new(),
        })
    }

    /// The GPUs, in the order asked.
    pub fn devices(&self) -> &[CudaDevice] {
        &self.devices
    }

    /// Runs a job on a free GPU. One that turns out unhealthy is given up, and the job goes to another.
    fn with<T>(&self, run: impl Fn(&CudaDevice) -> Result<T, RigError>) -> Result<T, RigError> {
        loop {
            let lease = self.lease();
            let device = &self.devices[lease.index];
            let done = run(device);
            if done.is_ok() || !device.is_unhealthy() || !lease.give_up() {
                return done;
            }
        }
    }

    fn lease(&self) -> Lease<'_> {
        let mut rota = self.lock();
        loop {
            if let Some(index) = rota.free.pop() {
                return Lease { pool: self, index };
            }
            rota = self
                .changed
                .wait(rota)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rota> {
        self.rota.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A GPU in use; given back whatever happens.
struct Lease<'a> {
    pool: &'a CudaPool,
    index: usize,
}

impl Lease<'_> {
    /// Keeps the GPU out of the rota; `false`: it is the last one, and stays to say what is wrong.
    fn give_up(self) -> bool {
        let mut rota = self.pool.lock();
        if rota.healthy == 1 {
            return false;
        }
        rota.healthy -= 1;
        drop(rota);
        std::mem::forget(self);
        true
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.pool.lock().free.push(self.index);
        self.pool.changed.notify_one();
    }
}

impl Device for CudaPool {
    fn gpu(&self) -> &Gpu {
        self.devices[0].gpu()
    }

    fn about(&self) -> &About {
        self.devices[0].about()
    }

    fn execute(&self, job: &Job<'_>) -> Result<Execution, RigError> {
        self.with(|device| device.execute(job))
    }

    fn time(&self, job: &Job<'_>) -> Result<Timing, RigError> {
        self.with(|device| device.time(job))
    }

    fn time_at_full_load(&self, job: &Job<'_>) -> Result<Option<Timing>, RigError> {
        self.with(|device| device.time_at_full_load(job))
    }

    /// The first of them: libraries and final claims need one GPU only.
    fn cuda(&self) -> Option<&CudaDevice> {
        self.devices.first()
    }

    fn reserve(&self) -> Option<Reserved<'_>> {
        let lease = self.lease();
        let mut reserved = self.devices[lease.index].reserve()?;
        // the device is let go before its place in the rota
        reserved._held.push(Box::new(lease));
        Some(reserved)
    }
}
