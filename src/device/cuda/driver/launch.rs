//! Modules, and the launches of their entries with arguments of exactly the width they declare.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use cudarc::driver::sys;

use super::{Context, CudaError, Result, check};
use crate::device::cuda::protocol;

/// A loaded module.
pub struct Module {
    module: sys::CUmodule,
}

impl Module {
    /// Takes a module that was loaded and nobody else unloads.
    pub(super) fn new(module: sys::CUmodule) -> Self {
        Self { module }
    }

    /// Resolves a launch and sets what its function needs: shared memory beyond the default, clusters
    /// beyond the portable size. Compares the widths of all parameters with the module's.
    pub fn prepare(
        &self,
        launch: &protocol::Launch,
        values: Vec<Value>,
        widths: &[usize],
    ) -> Result<Prepared<'_>> {
        use sys::CUfunction_attribute_enum as A;
        let name =
            CString::new(launch.entry.as_str()).map_err(|_| mismatch("cuModuleGetFunction"))?;
        let mut function = ptr::null_mut();
        // SAFETY: a valid pointer to a handle, a loaded module and a string that ends in zero.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&mut function, self.module, name.as_ptr())
        })?;
        for (i, &width) in widths.iter().enumerate() {
            if parameter_width(function, i) != Some(width) {
                return Err(mismatch("cuFuncGetParamInfo"));
            }
        }
        if values.len() != widths.len() || parameter_width(function, widths.len()).is_some() {
            return Err(mismatch("cuFuncGetParamInfo"));
        }
        let set = |attribute, value| {
            // SAFETY: a function the driver gave.
            check("cuFuncSetAttribute", unsafe {
                sys::cuFuncSetAttribute(function, attribute, value)
            })
        };
        if launch.smem > 0 {
            let smem = c_int::try_from(launch.smem).unwrap_or(c_int::MAX);
            set(A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem)?;
        }
        let blocks: u64 = launch.cluster.iter().map(|&n| u64::from(n)).product();
        if blocks > 8 {
            set(A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        }
        Ok(Prepared {
            function,
            grid: launch.grid,
            block: launch.block,
            cluster: launch.cluster,
            smem: launch.smem,
            values,
            _module: PhantomData,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once. A failure means that the context is gone, and with it the
        // module.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}

impl Context {
    /// Launches, or adds to the graph being captured.
    pub fn launch(&self, launch: &Prepared<'_>) -> Result<()> {
        // SAFETY: an attribute is plain data; zero is valid for every field.
        let mut attribute: sys::CUlaunchAttribute = unsafe { MaybeUninit::zeroed().assume_init() };
        attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        let [x, y, z] = launch.cluster;
        attribute.value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        let clustered = launch.cluster != [1, 1, 1];
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid[0],
            gridDimY: launch.grid[1],
            gridDimZ: launch.grid[2],
            blockDimX: launch.block[0],
            blockDimY: launch.block[1],
            blockDimZ: launch.block[2],
            sharedMemBytes: launch.smem,
            hStream: self.stream,
            attrs: if clustered {
                &mut attribute
            } else {
                ptr::null_mut()
            },
            numAttrs: c_uint::from(clustered),
        };
        let mut pointers: Vec<*mut c_void> = launch
            .values
            .iter()
            .map(|value| ptr::from_ref(value).cast_mut().cast())
            .collect();
        // SAFETY: one pointer for each parameter, each to at least as many bytes as the module declares
        // (`Module::prepare` compared them); the driver copies them before it returns, when capturing too.
        check("cuLaunchKernelEx", unsafe {
            sys::cuLaunchKernelEx(
                &config,
                launch.function,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}

/// A parameter's bytes, as aligned as any parameter may be.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub struct Value([u8; 128]);

impl Value {
    /// At most 128 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut value = [0; 128];
        value.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(value))
    }
}

/// A launch that needs nothing but a stream.
pub struct Prepared<'module> {
    function: sys::CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    smem: u32,
    values: Vec<Value>,
    _module: PhantomData<&'module Module>,
}

impl Prepared<'_> {
    /// What the function needs and what it was given, for the message of a refusal.
    pub fn limits(&self) -> String {
        use sys::CUfunction_attribute_enum as A;
        let get = |attribute| {
            let mut value = 0;
            // SAFETY: a valid pointer to an int and a function the driver gave.
            check("cuFuncGetAttribute", unsafe {
                sys::cuFuncGetAttribute(&mut value, attribute, self.function)
            })
            .map(|()| value)
        };
        let show = |value: Result<c_int>| value.map_or_else(|_| "?".to_owned(), |v| v.to_string());
        format!(
            "grid {:?}, block {:?} (this function: at most {} threads with its {} registers), cluster {:?}, \
             shared memory {} static + {} dynamic bytes",
            self.grid,
            self.block,
            show(get(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)),
            show(get(A::CU_FUNC_ATTRIBUTE_NUM_REGS)),
            self.cluster,
            show(get(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)),
            self.smem
        )
    }
}

/// The module is not what the parsed text said: another file, or a stale cubin.
fn mismatch(call: &'static str) -> CudaError {
    CudaError {
        call,
        code: sys::CUresult::CUDA_ERROR_INVALID_SOURCE as u32,
        name: "parameter mismatch".to_owned(),
        text: "the cubin's parameters are not those of the PTX text".to_owned(),
    }
}

fn parameter_width(function: sys::CUfunction, index: usize) -> Option<usize> {
    let (mut offset, mut size) = (0, 0);
    // SAFETY: valid pointers to sizes and a function the driver gave; an index past the end is an error.
    let code = unsafe { sys::cuFuncGetParamInfo(function, index, &mut offset, &mut size) };
    (code == sys::CUresult::CUDA_SUCCESS).then_some(size)
}
