//! The CUDA driver, cuBLASLt and NVRTC behind a safe interface: the only unsafe code of this crate, used by
//! the worker alone. Every return code is checked and kept. Nothing here decides what an error means for a
//! candidate, beyond telling those that break the context from those that do not.

#![expect(
    unsafe_code,
    reason = "the CUDA driver is a C interface; each block says why it holds"
)]

mod blas;
mod launch;
mod nvrtc;

pub use blas::{Blas, Described};
pub use launch::{Module, Prepared, Value};
pub use nvrtc::compile;

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::sys;

use super::facts::{fp32_fma_per_cycle, tensor_bf16_flops_per_cycle};
use super::image::{is_ptx, is_whole_elf};
use crate::device::Gpu;
use crate::source::DType;
use crate::units::{Bytes, SmArch, SmSuffix};

/// The oldest driver that has every call used here: CUDA 12.8.
const OLDEST_DRIVER: u32 = 12080;

/// The driver's word on a failed call.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{call}: {name} ({code}): {text}")]
pub struct CudaError {
    /// Which function.
    pub call: &'static str,
    /// Its number: 700.
    pub code: u32,
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
    /// The driver's sentence.
    pub text: String,
}

impl CudaError {
    /// Whether a kernel broke the context: every later call fails too.
    pub fn is_fault(&self) -> bool {
        // 700 illegal address, 702 launch time-out (display watchdog), 710 assert, 714 stack, 715 illegal
        // instruction, 716 misaligned, 717 address space, 718 program counter, 719 launch failed (trap),
        // 721 tensor memory leak, 226 contained
        matches!(self.code, 226 | 700 | 702 | 710 | 714..=719 | 721)
    }

    /// Whether the driver refuses a launch or module for its size: nothing ran.
    pub fn is_refusal(&self) -> bool {
        // 1 invalid value, 2 memory, 500 no such entry, 701 resources, 720 cooperative size, 801 not
        // supported, 912 cluster size
        matches!(self.code, 1 | 2 | 500 | 701 | 720 | 801 | 912)
    }

    /// Whether device memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == 2
    }
}

type Result<T> = std::result::Result<T, CudaError>;

/// An address on the device. Only kernels dereference it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(u64);

impl Address {
    /// `bytes` further.
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// As a kernel sees it.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The primary context of one GPU, current on the thread that opened it, and its one stream.
pub struct Context {
    device: sys::CUdevice,
    gpu_count: u32,
    stream: sys::CUstream,
    /// Of and for one thread.
    _thread: PhantomData<*const ()>,
}

/// Whether the driver's library loads here. It opens nothing.
pub fn present() -> bool {
    // SAFETY: it only tries to load the library.
    unsafe { sys::is_culib_present() }
}

impl Context {
    /// Opens GPU `ordinal`. The error is a sentence for the user.
    pub fn open(ordinal: u32) -> std::result::Result<Self, String> {
        if !present() {
            return Err(
                "no NVIDIA driver here (libcuda.so does not load); install it, or use --device sim"
                    .to_owned(),
            );
        }
        // SAFETY: no pointers; must come first, and does.
        check("cuInit", unsafe { sys::cuInit(0) }).map_err(|e| e.to_string())?;
        let driver = driver_version().map_err(|e| e.to_string())?;
        if driver < OLDEST_DRIVER {
            return Err(format!(
                "the NVIDIA driver supports CUDA {}.{}; warptree needs 12.8 or later",
                driver / 1000,
                driver % 1000 / 10
            ));
        }
        let mut count = 0;
        // SAFETY: a valid pointer to an int.
        check("cuDeviceGetCount", unsafe {
            sys::cuDeviceGetCount(&mut count)
        })
        .map_err(|e| e.to_string())?;
        if i64::from(ordinal) >= i64::from(count) {
            return Err(format!(
                "there is no GPU cuda:{ordinal}; the driver shows {count} (cuda:0 is the first)"
            ));
        }
        Self::create(ordinal, count.max(0) as u32).map_err(|e| e.to_string())
    }

    fn create(ordinal: u32, gpu_count: u32) -> Result<Self> {
        let mut device = 0;
        let mut context = ptr::null_mut();
        let mut stream = ptr::null_mut();
        // SAFETY: pointers to locals of the right types; the context is retained for the process's life.
        unsafe {
            check(
                "cuDeviceGet",
                sys::cuDeviceGet(&mut device, ordinal as c_int),
            )?;
            check(
                "cuDevicePrimaryCtxRetain",
                sys::cuDevicePrimaryCtxRetain(&mut context, device),
            )?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            check(
                "cuStreamCreate",
                sys::cuStreamCreate(
                    &mut stream,
                    sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint,
                ),
            )?;
        }
        Ok(Self {
            device,
            gpu_count,
            stream,
            _thread: PhantomData,
        })
    }

    /// GPUs of this host.
    pub fn gpu_count(&self) -> u32 {
        self.gpu_count
    }

    /// Where the GPU is plugged in: `0000:19:00.0`.
    pub fn pci_bus_id(&self) -> Result<String> {
        let mut id = [0u8; 32];
        // SAFETY: the buffer is as long as said; the driver ends it with a zero.
        check("cuDeviceGetPCIBusId", unsafe {
            sys::cuDeviceGetPCIBusId(id.as_mut_ptr().cast(), 31, self.device)
        })?;
        let id = CStr::from_bytes_until_nul(&id).unwrap_or_default();
        Ok(id.to_string_lossy().into_owned())
    }

    /// Facts of the GPU, from the driver and, where the driver does not tell, from the architecture.
    pub fn gpu(&self) -> Result<Gpu> {
        use sys::CUdevice_attribute_enum as A;
        let mut name = [0u8; 256];
        // SAFETY: the buffer is as long as said; the driver ends it with a zero.
        check("cuDeviceGetName", unsafe {
            sys::cuDeviceGetName(name.as_mut_ptr().cast(), 255, self.device)
        })?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        let major = self.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let number = (major * 10 + minor) as u16;
        let memory_khz = self.attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
        let bus_bits = self.attribute(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
        Ok(Gpu {
            name: name.to_string_lossy().into_owned(),
            arch: SmArch {
                number,
                suffix: if number >= 90 {
                    SmSuffix::Specific
                } else {
                    SmSuffix::Portable
                },
            },
            sm_count: self.attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            sm_clock_mhz: f64::from(self.attribute(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?) / 1e3,
            // two transfers a clock
            memory_bandwidth: f64::from(memory_khz) * 1e3 * 2.0 * f64::from(bus_bits) / 8.0,
            l2: Bytes(self.attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into()),
            smem_per_block: Bytes(
                self.attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
                    .into(),
            ),
            smem_per_sm: Bytes(
                self.attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?
                    .into(),
            ),
            registers_per_sm: self
                .attribute(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            threads_per_sm: self
                .attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            blocks_per_sm: self.attribute(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
            fp32_fma_per_cycle: fp32_fma_per_cycle(number),
            tensor_bf16_flops_per_cycle: tensor_bf16_flops_per_cycle(number),
        })
    }

    fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: a valid pointer to an int, and a device the driver gave.
        check("cuDeviceGetAttribute", unsafe {
            sys::cuDeviceGetAttribute(&mut value, attribute, self.device)
        })?;
        Ok(value.max(0) as u32)
    }

    /// Free and total device memory.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid pointers to sizes.
        check("cuMemGetInfo", unsafe {
            sys::cuMemGetInfo_v2(&mut free, &mut total)
        })?;
        Ok((free as u64, total as u64))
    }

    /// At least one byte is allocated.
    pub fn allocate(&self, bytes: u64) -> Result<Address> {
        let mut address = 0;
        // SAFETY: a valid pointer to an address.
        check("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&mut address, bytes.max(1) as usize)
        })?;
        Ok(Address(address))
    }

    /// Gives back what [`Context::allocate`] gave.
    pub fn free(&self, address: Address) -> Result<()> {
        // SAFETY: a wrong address is an error, not undefined behaviour, on the host.
        check("cuMemFree", unsafe { sys::cuMemFree_v2(address.0) })
    }

    /// Copies to the device and waits.
    pub fn upload(&self, to: Address, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the slice outlives the copy, which is waited for.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(to.0, bytes.as_ptr().cast(), bytes.len(), self.stream)
        })?;
        self.synchronize()
    }

    /// Copies from the device and waits.
    pub fn download(&self, from: Address, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the slice is exclusively ours and outlives the copy, which is waited for (below, even
        // when the copy's own call fails).
        let copied = check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from.0, bytes.len(), self.stream)
        });
        self.synchronize().and(copied)
    }

    /// Queues a copy on the device.
    pub fn copy(&self, to: Address, from: Address, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: device addresses only.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to.0, from.0, bytes as usize, self.stream)
        })
    }

    /// Queues a fill with one byte.
    pub fn fill(&self, at: Address, byte: u8, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: device addresses only.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(at.0, byte, bytes as usize, self.stream)
        })
    }

    /// Waits for everything queued. A fault of a kernel surfaces here.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: our own stream.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.stream)
        })
    }

    /// Loads a cubin, or PTX text through the driver's compiler.
    pub fn load(&self, image: &[u8]) -> Result<Module> {
        if !is_whole_elf(image) && !is_ptx(image) {
            return Err(CudaError {
                call: "cuModuleLoadData",
                code: sys::CUresult::CUDA_ERROR_INVALID_IMAGE as u32,
                name: "not a module".to_owned(),
                text: "the image is neither a whole cubin nor PTX text".to_owned(),
            });
        }
        // PTX must end in a zero, and a cubin may.
        let mut image = image.to_vec();
        image.push(0);
        let mut module = ptr::null_mut();
        // SAFETY: the image lives through the call and is copied by it. PTX ends in a zero, and the section
        // table of a cubin, its last part, lies within (both just checked).
        check("cuModuleLoadData", unsafe {
            sys::cuModuleLoadData(&mut module, image.as_ptr().cast())
        })?;
        Ok(Module::new(module))
    }

    /// Runs `queue` with the stream capturing: what it queues becomes a graph and does not run.
    pub fn capture(&self, queue: impl FnOnce(&Self) -> Result<()>) -> Result<Graph> {
        // SAFETY: our own stream; capture ends below on every path.
        check("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(
                self.stream,
                sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            )
        })?;
        let queued = queue(self);
        let mut graph = ptr::null_mut();
        // SAFETY: a valid pointer to a handle.
        let ended = check("cuStreamEndCapture", unsafe {
            sys::cuStreamEndCapture(self.stream, &mut graph)
        });
        let graph = Captured(graph);
        // the launch's own refusal says more than the capture it spoilt
        queued?;
        ended?;
        let mut executable = ptr::null_mut();
        // SAFETY: a graph the driver gave; instantiation copies it.
        check("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&mut executable, graph.0, 0)
        })?;
        let executable = Graph(executable);
        // SAFETY: both handles are ours.
        check("cuGraphUpload", unsafe {
            sys::cuGraphUpload(executable.0, self.stream)
        })?;
        self.synchronize()?;
        Ok(executable)
    }

    /// Queues a replay.
    pub fn replay(&self, graph: &Graph) -> Result<()> {
        // SAFETY: both handles are ours.
        check("cuGraphLaunch", unsafe {
            sys::cuGraphLaunch(graph.0, self.stream)
        })
    }

    /// A point in time on the stream.
    pub fn event(&self) -> Result<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: a valid pointer to a handle.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&mut event, sys::CUevent_flags::CU_EVENT_DEFAULT as c_uint)
        })?;
        Ok(Event(event))
    }

    /// Queues the taking of a time.
    pub fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both handles are ours.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(event.0, self.stream)
        })
    }

    /// Nanoseconds between two events that have both passed.
    pub fn elapsed(&self, start: &Event, end: &Event) -> Result<f64> {
        let mut milliseconds = 0f32;
        // SAFETY: a valid pointer to a float, and our own events.
        check("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime_v2(&mut milliseconds, start.0, end.0)
        })?;
        Ok(f64::from(milliseconds) * 1e6)
    }

    /// Encodes a tensor map for a region at `base`. The shape of its lists is checked by the caller's
    /// error, not trusted.
    pub fn encode(
        &self,
        map: &crate::source::TensorMap,
        base: Address,
    ) -> std::result::Result<[u8; 128], String> {
        use sys::{CUtensorMapL2promotion_enum as P, CUtensorMapSwizzle_enum as S};
        let rank = map.dims.len();
        if !(1..=5).contains(&rank) || map.strides.len() + 1 != rank || map.tile.len() != rank {
            return Err(format!(
                "tensor map `{}`: {rank} dims, {} strides and {} tile sizes; give 1 to 5 dims, a stride \
                 for each after the first, and a tile size for each",
                map.name,
                map.strides.len(),
                map.tile.len()
            ));
        }
        let swizzle = match map.swizzle {
            0 => S::CU_TENSOR_MAP_SWIZZLE_NONE,
            32 => S::CU_TENSOR_MAP_SWIZZLE_32B,
            64 => S::CU_TENSOR_MAP_SWIZZLE_64B,
            128 => S::CU_TENSOR_MAP_SWIZZLE_128B,
            other => {
                return Err(format!(
                    "tensor map `{}`: no swizzle of {other} bytes",
                    map.name
                ));
            }
        };
        let promotion = match map.promotion {
            0 => P::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            64 => P::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
            128 => P::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            256 => P::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            other => {
                return Err(format!(
                    "tensor map `{}`: no L2 promotion of {other} bytes",
                    map.name
                ));
            }
        };
        let fill = if map.nan_fill {
            sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
        } else {
            sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
        };
        let unit = [1 as sys::cuuint32_t; 5];
        let mut encoded = sys::CUtensorMap_st { opaque: [0; 16] };
        // SAFETY: the lists have `rank` elements (strides one fewer), as checked; the map is 128 bytes,
        // aligned; the base is a device address that the driver only writes into the map.
        check("cuTensorMapEncodeTiled", unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut encoded,
                tensor_dtype(map.dtype),
                rank as u32,
                base.0 as *mut c_void,
                map.dims.as_ptr(),
                map.strides.as_ptr(),
                map.tile.as_ptr(),
                unit.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                promotion,
                fill,
            )
        })
        .map_err(|e| {
            format!(
                "tensor map `{}`: {e}; boxes hold at most 256 elements a dimension and no more than the \
                 swizzle span inside, strides and base are multiples of 16 bytes",
                map.name
            )
        })?;
        let mut bytes = [0; 128];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(encoded.opaque) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }
}

/// The CUDA version the driver supports: 13000 for 13.0.
pub fn driver_version() -> Result<u32> {
    let mut version = 0;
    // SAFETY: a valid pointer to an int; needs no initialisation.
    check("cuDriverGetVersion", unsafe {
        sys::cuDriverGetVersion(&mut version)
    })?;
    Ok(version.max(0) as u32)
}

struct Captured(sys::CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: captured once, destroyed once; a failure means that the context is gone.
            let _ = unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

/// An executable graph.
pub struct Graph(sys::CUgraphExec);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated once, destroyed once; a failure means that the context is gone.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

/// A point in time on the stream.
pub struct Event(sys::CUevent);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; a failure means that the context is gone.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

fn check(call: &'static str, code: sys::CUresult) -> Result<()> {
    if code == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let words = |f: unsafe fn(sys::CUresult, *mut *const std::ffi::c_char) -> sys::CUresult| {
        let mut text = ptr::null();
        // SAFETY: a valid pointer to a string pointer; the driver gives a static string or leaves it null.
        unsafe {
            if f(code, &mut text) == sys::CUresult::CUDA_SUCCESS && !text.is_null() {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            } else {
                "no description".to_owned()
            }
        }
    };
    Err(CudaError {
        call,
        code: code as u32,
        name: words(sys::cuGetErrorName),
        text: words(sys::cuGetErrorString),
    })
}

fn tensor_dtype(dtype: DType) -> sys::CUtensorMapDataType {
    use sys::CUtensorMapDataType_enum as T;
    match dtype {
        DType::F64 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        DType::F32 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F16 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::Bf16 => T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::I32 => T::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::U32 => T::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        DType::I64 => T::CU_TENSOR_MAP_DATA_TYPE_INT64,
        DType::U64 => T::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        DType::U8 => T::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }
}
