//! cuBLASLt behind a safe interface: its algorithms for a product, and one of them queued on the stream.
//! It chooses nothing: which algorithm is timed is the parent's to say.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use cudarc::cublaslt::sys;

use super::{Address, Context};
use crate::device::cuda::protocol::{Algorithm, Product};
use crate::source::DType;

/// Scratch memory an algorithm may ask for.
const MOST_WORKSPACE: usize = 64 << 20;

/// Base addresses in row-major products are those of whole regions: aligned like every allocation.
const ALIGNMENT: u32 = 256;

type Result<T> = std::result::Result<T, String>;

/// The library, opened for this context. It stays open for the process's life.
pub struct Blas {
    handle: sys::cublasLtHandle_t,
}

/// A product's shapes and types, as the library wants them described.
pub struct Described {
    operation: sys::cublasLtMatmulDesc_t,
    /// Of A, B and C.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    scale: Scale,
}

/// The type of alpha and beta.
#[derive(Clone, Copy)]
enum Scale {
    F32,
    F64,
}

impl Blas {
    /// Opens the library; a context must be current. The error is a sentence for the user.
    pub fn open() -> Result<Self> {
        // SAFETY: it only tries to load the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(
                "libcublasLt does not load; install the CUDA toolkit's cuBLAS, or name its folder in \
                 LD_LIBRARY_PATH"
                    .to_owned(),
            );
        }
        let mut handle = ptr::null_mut();
        // SAFETY: a valid pointer to a handle.
        check("cublasLtCreate", unsafe {
            sys::cublasLtCreate(&mut handle)
        })?;
        Ok(Self { handle })
    }

    /// The library's version: 130002.
    pub fn version(&self) -> u64 {
        // SAFETY: no arguments.
        unsafe { sys::cublasLtGetVersion() as u64 }
    }

    /// The library's own choices for a product, the first it would take first.
    pub fn algorithms(&self, product: &Product, most: u32) -> Result<Vec<Algorithm>> {
        let described = Described::new(product)?;
        let preference = Preference::new()?;
        // SAFETY: plain data; zero is valid for every field, and the library fills what it counts.
        let empty: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut found = vec![empty; most.min(1024) as usize];
        let mut count: c_int = 0;
        let [a, b, c] = described.layouts;
        // SAFETY: live descriptors, and an array as long as said.
        check("cublasLtMatmulAlgoGetHeuristic", unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                described.operation,
                // column-major sees the transposed product: Cᵀ = op(B)ᵀ · op(A)ᵀ
                b,
                a,
                c,
                c,
                preference.0,
                found.len() as c_int,
                found.as_mut_ptr(),
                &mut count,
            )
        })?;
        found.truncate(count.max(0) as usize);
        Ok(found
            .iter()
            .filter(|result| result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS)
            .map(|result| Algorithm {
                opaque: result.algo.data,
                workspace: result.workspaceSize as u64,
                waves: result.wavesCount,
            })
            .collect())
    }

    /// Queues the product of what stands at the first two addresses, into the third.
    pub fn multiply(
        &self,
        cuda: &Context,
        described: &Described,
        algorithm: &Algorithm,
        [a, b, c]: [Address; 3],
        workspace: Option<Address>,
    ) -> Result<()> {
        let algo = sys::cublasLtMatmulAlgo_t {
            data: algorithm.opaque,
        };
        let (one, zero) = (1f64, 0f64);
        let (one_f32, zero_f32) = (1f32, 0f32);
        let (alpha, beta): (*const c_void, *const c_void) = match described.scale {
            Scale::F64 => (ptr::from_ref(&one).cast(), ptr::from_ref(&zero).cast()),
            Scale::F32 => (
                ptr::from_ref(&one_f32).cast(),
                ptr::from_ref(&zero_f32).cast(),
            ),
        };
        let [layout_a, layout_b, layout_c] = described.layouts;
        let pointer = |address: Address| address.get() as *mut c_void;
        // SAFETY: live descriptors and a live stream; the scalars outlive the call, which copies them; the
        // addresses are only dereferenced by the GPU.
        check("cublasLtMatmul", unsafe {
            sys::cublasLtMatmul(
                self.handle,
                described.operation,
                alpha,
                pointer(b),
                layout_b,
                pointer(a),
                layout_a,
                beta,
                pointer(c),
                layout_c,
                pointer(c),
                layout_c,
                &algo,
                workspace.map_or(ptr::null_mut(), pointer),
                workspace.map_or(0, |_| algorithm.workspace as usize),
                cuda.stream.cast(),
            )
        })
    }
}

impl Described {
    /// An error names a combination of types that the library's products do not have.
    pub fn new(product: &Product) -> Result<Self> {
        use sys::cublasComputeType_t as C;
        let (compute, scale_type, scale) = match (product.input, product.fast) {
            (DType::F64, _) => (C::CUBLAS_COMPUTE_64F, data_type(DType::F64)?, Scale::F64),
            (DType::F32, true) => (
                C::CUBLAS_COMPUTE_32F_FAST_TF32,
                data_type(DType::F32)?,
                Scale::F32,
            ),
            (DType::F32, false) | (DType::F16 | DType::Bf16, _) => {
                (C::CUBLAS_COMPUTE_32F, data_type(DType::F32)?, Scale::F32)
            }
            (DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8, _) => {
                return Err(format!(
                    "no product of {:?} matrices is offered; use f64, f32, f16 or bf16",
                    product.input
                ));
            }
        };
        let mut described = Self {
            operation: ptr::null_mut(),
            layouts: [ptr::null_mut(); 3],
            scale,
        };
        // SAFETY: a valid pointer to a handle.
        check("cublasLtMatmulDescCreate", unsafe {
            sys::cublasLtMatmulDescCreate(&mut described.operation, compute, scale_type)
        })?;
        // column-major: the library's A is our B, and its transposition the same
        for (attribute, transposed) in [
            (
                sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                product.b_transposed,
            ),
            (
                sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB,
                product.a_transposed,
            ),
        ] {
            let value = i32::from(transposed);
            // SAFETY: a live descriptor; the value is copied.
            check("cublasLtMatmulDescSetAttribute", unsafe {
                sys::cublasLtMatmulDescSetAttribute(
                    described.operation,
                    attribute,
                    ptr::from_ref(&value).cast(),
                    size_of_val(&value),
                )
            })?;
        }
        let stored = |rows: u64, columns: u64, transposed: bool| {
            if transposed {
                (columns, rows)
            } else {
                (rows, columns)
            }
        };
        let matrices = [
            (
                stored(product.m, product.k, product.a_transposed),
                product.input,
            ),
            (
                stored(product.k, product.n, product.b_transposed),
                product.input,
            ),
            ((product.m, product.n), product.output),
        ];
        for (layout, ((rows, columns), dtype)) in described.layouts.iter_mut().zip(matrices) {
            // SAFETY: a valid pointer to a handle. A row-major matrix is its transpose in column-major.
            check("cublasLtMatrixLayoutCreate", unsafe {
                sys::cublasLtMatrixLayoutCreate(
                    layout,
                    data_type(dtype)?,
                    columns,
                    rows,
                    columns as i64,
                )
            })?;
        }
        Ok(described)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: each was created once or is null, and is destroyed once; a failure leaks a few bytes.
        unsafe {
            if !self.operation.is_null() {
                let _ = sys::cublasLtMatmulDescDestroy(self.operation);
            }
            for layout in self.layouts {
                if !layout.is_null() {
                    let _ = sys::cublasLtMatrixLayoutDestroy(layout);
                }
            }
        }
    }
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Result<Self> {
        use sys::cublasLtMatmulPreferenceAttributes_t as P;
        let mut preference = Self(ptr::null_mut());
        // SAFETY: a valid pointer to a handle.
        check("cublasLtMatmulPreferenceCreate", unsafe {
            sys::cublasLtMatmulPreferenceCreate(&mut preference.0)
        })?;
        let workspace = MOST_WORKSPACE as u64;
        preference.set(P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace)?;
        for attribute in [
            P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            preference.set(attribute, &ALIGNMENT)?;
        }
        Ok(preference)
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulPreferenceAttributes_t,
        value: &T,
    ) -> Result<()> {
        // SAFETY: a live descriptor; the value is copied.
        check("cublasLtMatmulPreferenceSetAttribute", unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(
                self.0,
                attribute,
                ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        })
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: created once, destroyed once; a failure leaks a few bytes.
            let _ = unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
        }
    }
}

fn check(call: &'static str, status: sys::cublasStatus_t) -> Result<()> {
    if status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    let words = |text: *const c_char| {
        if text.is_null() {
            "no description".to_owned()
        } else {
            // SAFETY: the library gives static strings.
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        }
    };
    // SAFETY: a status the library gave.
    let (name, text) = unsafe {
        (
            words(sys::cublasLtGetStatusName(status)),
            words(sys::cublasLtGetStatusString(status)),
        )
    };
    Err(format!("{call}: {name} ({}): {text}", status as u32))
}

fn data_type(dtype: DType) -> Result<sys::cudaDataType> {
    use sys::cudaDataType_t as T;
    match dtype {
        DType::F64 => Ok(T::CUDA_R_64F),
        DType::F32 => Ok(T::CUDA_R_32F),
        DType::F16 => Ok(T::CUDA_R_16F),
        DType::Bf16 => Ok(T::CUDA_R_16BF),
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 => {
            Err(format!("cuBLASLt products of {dtype:?} are not offered"))
        }
    }
}
