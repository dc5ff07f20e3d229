//! A product with the algorithm that the library chose for it.

use super::super::device::Device;
use super::super::stream::Stream;
use super::functions::{CublasLt, Status, check};
use crate::diag::{Diagnostic, Result};
use crate::num::DType;
use crate::products::{Activation, Bias, Matrix, Order, Product};
use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t as Config,
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as DescAttribute, cublasLtMatmulHeuristicResult_t,
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayout_t,
    cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cublasLtReductionScheme_t, cublasStatus_t, cudaDataType,
};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// `cublasOperation_t`: a matrix as it lies.
const AS_IT_LIES: i32 = 0;
/// The same: transposed.
const TRANSPOSED: i32 = 1;
/// `CUBLASLT_NUMERICAL_IMPL_FLAGS_GAUSSIAN`: complex products by three real ones, whose parts have the
/// error of the larger.
const GAUSSIAN: u64 = 1 << 32;
/// Bytes that an algorithm may ask for beside its operands; NVIDIA's advice for this generation.
const MOST_WORKSPACE: usize = 32 << 20;

/// A product, ready to be issued. May be used from any thread.
pub struct PlannedProduct {
    library: Arc<CublasLt>,
    device: Arc<Device>,
    desc: Desc,
    /// Held while the description has the bias of a call.
    bias: Mutex<()>,
    // In the library's order: its first operand is ours on the right.
    first: Layout,
    second: Layout,
    result: Layout,
    algorithm: cublasLtMatmulAlgo_t,
    workspace_bytes: usize,
    added: Bias,
    /// 1 as the type in which sums are scaled.
    one: Factor,
    /// Where each call starts in `a`, `b` and the result, in bytes.
    starts: Vec<[u64; 3]>,
}

/// Where operands, result and workspace of a product are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductAddresses {
    /// The left operand.
    pub a: u64,
    /// The right operand.
    pub b: u64,
    /// The bias, if there is one: a vector, or a matrix for each of the result.
    pub bias: u64,
    /// The result.
    pub d: u64,
    /// As many bytes as [`PlannedProduct::workspace_bytes`] says, at a multiple of 256.
    pub workspace: u64,
}

impl std::fmt::Debug for PlannedProduct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlannedProduct").field("algorithm", &self.algorithm()).finish_non_exhaustive()
    }
}

/// How the library computes a type.
fn types(dtype: DType) -> Option<(cudaDataType, cudaDataType, cublasComputeType_t)> {
    use cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F};
    use cudaDataType::{CUDA_C_32F, CUDA_C_64F, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_64F};
    Some(match dtype {
        DType::F16 => (CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
        DType::BF16 => (CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F),
        DType::F32 => (CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F),
        DType::F64 => (CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F),
        DType::C64 => (CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F),
        DType::C128 => (CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F),
        _ => return None,
    })
}

/// A number of the type in which sums are scaled. The library reads complex ones of 16 bytes with
/// instructions that fault unless they lie at a multiple of 16.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Factor([u8; 16]);

/// 0 in any type.
const ZERO: Factor = Factor([0; 16]);

/// 1 in the type in which sums are scaled: a complex number is its real part, then zeros.
fn one(dtype: DType) -> Factor {
    let mut bytes = [0; 16];
    match dtype {
        DType::F64 | DType::C128 => bytes[..8].copy_from_slice(&1f64.to_ne_bytes()),
        _ => bytes[..4].copy_from_slice(&1f32.to_ne_bytes()),
    }
    Factor(bytes)
}

/// What the library does with sums before it rounds them.
fn epilogue(product: &Product) -> cublasLtEpilogue_t {
    use cublasLtEpilogue_t::{
        CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS,
    };
    match (product.activation, product.bias == Bias::Row) {
        (Activation::None, false) => CUBLASLT_EPILOGUE_DEFAULT,
        (Activation::None, true) => CUBLASLT_EPILOGUE_BIAS,
        (Activation::Gelu, false) => CUBLASLT_EPILOGUE_GELU,
        (Activation::Gelu, true) => CUBLASLT_EPILOGUE_GELU_BIAS,
    }
}

impl PlannedProduct {
    /// Asks the library for an algorithm; nothing where it has none.
    pub fn new(library: &Arc<CublasLt>, device: &Arc<Device>, product: &Product) -> Result<Option<Self>> {
        let Some((data, scale, compute)) = types(product.dtype) else {
            return Err(Diagnostic::bug(format!("matrices of {} are not the library's", product.dtype)));
        };
        let handle = library.handle(device)?;
        let Product { m, n, k, a, b, d, .. } = product;
        let desc = Desc::new(library, compute, scale)?;
        let transposed = |matrix: &Matrix| match matrix.order {
            Order::Rows => AS_IT_LIES,
            Order::Columns => TRANSPOSED,
        };
        desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed(b))?;
        desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, &transposed(a))?;
        desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue(product))?;
        let Some((returned, ..)) = types(product.result) else {
            return Err(Diagnostic::bug(format!("no product of the library's is {}", product.result)));
        };
        let layout = |data: cudaDataType, rows: i64, columns: i64, matrix: &Matrix| {
            Layout::new(library, data, [rows, columns], matrix, product.stack)
        };
        let (first, second) = (layout(data, *k, *n, b)?, layout(data, *m, *k, a)?);
        let result = layout(returned, *m, *n, d)?;
        let wishes = Wishes::new(library, [b.align, a.align, d.align])?;
        // SAFETY: plain data that the library fills in.
        let mut found: cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut count = 0;
        // SAFETY: all objects were created by the library and are alive, and both results are
        // valid for a write; one algorithm is asked for.
        let status = unsafe {
            (library.functions.choose)(
                handle, desc.raw, first.raw, second.raw, result.raw, result.raw, wishes.raw, 1, &mut found, &mut count,
            )
        };
        let is_none = status == cublasStatus_t::CUBLAS_STATUS_SUCCESS as Status && count == 0;
        if is_none || status == cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as Status {
            return Ok(None);
        }
        check(status, "choose an algorithm")?;
        check(found.state as Status, "choose an algorithm")?;
        let bytes = [product.dtype, product.dtype, product.result].map(|dtype| dtype.bytes() as u64);
        let in_bytes = |start: [i64; 3]| std::array::from_fn(|side| start[side].unsigned_abs() * bytes[side]);
        let starts = product.starts().into_iter().map(in_bytes);
        Ok(Some(Self {
            library: Arc::clone(library),
            device: Arc::clone(device),
            desc,
            bias: Mutex::new(()),
            first,
            second,
            result,
            algorithm: found.algo,
            workspace_bytes: found.workspaceSize,
            added: product.bias,
            one: one(product.dtype),
            starts: starts.collect(),
        }))
    }

    /// Calls of the library that it is: launches of one issue, at least.
    pub fn calls(&self) -> usize {
        self.starts.len()
    }
    /// Bytes that it needs beside its operands.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// The library's algorithm in words: its number, tile, stages, and in how many parts sums are split.
    pub fn algorithm(&self) -> String {
        let get = |attribute: Config| -> u32 {
            let (mut value, mut written) = (0u32, 0usize);
            let place = (&raw mut value).cast::<c_void>();
            // SAFETY: each of these attributes is 4 bytes, for which `value` is valid.
            unsafe { (self.library.functions.algorithm_get)(&self.algorithm, attribute, place, 4, &mut written) };
            value
        };
        let (id, tile) = (get(Config::CUBLASLT_ALGO_CONFIG_ID), get(Config::CUBLASLT_ALGO_CONFIG_TILE_ID));
        let (stages, parts) =
            (get(Config::CUBLASLT_ALGO_CONFIG_STAGES_ID), get(Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
        format!("algorithm {id}, tile {tile}, stages {stages}, {parts} parts of each sum")
    }

    /// Issues it on a stream.
    ///
    /// The caller answers for the addresses: memory of this device that is as long as the product
    /// says, and stays allocated until the work is done.
    pub fn issue(&self, at: &ProductAddresses, stream: Stream) -> Result<()> {
        let handle = self.library.handle(&self.device)?;
        // The bias is part of the description, so one call at a time has it.
        let is_row = self.added == Bias::Row;
        let _held = is_row.then(|| self.bias.lock().unwrap_or_else(PoisonError::into_inner));
        if is_row {
            self.desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at.bias)?;
        }
        // What is added to products is the result itself 0 times, or a matrix that lies as it does.
        let (factor, added) = if self.added == Bias::Full { (self.one, at.bias) } else { (ZERO, at.d) };
        let pointer = |address: u64| address as *mut c_void;
        for [a, b, d] in &self.starts {
            // SAFETY: all objects are the library's and alive; the scalars are of the type in which
            // sums are scaled; the caller answers for the addresses. With a factor of 0 the result is
            // not read.
            let status = unsafe {
                (self.library.functions.multiply)(
                    handle,
                    self.desc.raw,
                    (&raw const self.one).cast(),
                    pointer(at.b + b),
                    self.first.raw,
                    pointer(at.a + a),
                    self.second.raw,
                    (&raw const factor).cast(),
                    pointer(added + d),
                    self.result.raw,
                    pointer(at.d + d),
                    self.result.raw,
                    &self.algorithm,
                    pointer(at.workspace),
                    self.workspace_bytes,
                    stream.raw().cast(),
                )
            };
            check(status, "multiply matrices")?;
        }
        Ok(())
    }
}

/// What is computed, as the library describes it.
struct Desc {
    library: Arc<CublasLt>,
    raw: cublasLtMatmulDesc_t,
}

// SAFETY: plain data on the heap, which no thread of the library's holds on to.
unsafe impl Send for Desc {}
// SAFETY: it is only read once it is made, but for the bias, for which there is a lock.
unsafe impl Sync for Desc {}

impl Desc {
    fn new(library: &Arc<CublasLt>, compute: cublasComputeType_t, scale: cudaDataType) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for a write.
        check(unsafe { (library.functions.desc_create)(&mut raw, compute, scale) }, "describe a product")?;
        Ok(Self { library: Arc::clone(library), raw })
    }

    fn set<T>(&self, attribute: DescAttribute, value: &T) -> Result<()> {
        let place = std::ptr::from_ref(value).cast::<c_void>();
        // SAFETY: the description is alive, and the value as long as it is said to be.
        check(
            unsafe { (self.library.functions.desc_set)(self.raw, attribute, place, size_of::<T>()) },
            "describe a product",
        )
    }
}

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: it was created once and is not used any more.
        unsafe { (self.library.functions.desc_destroy)(self.raw) };
    }
}

/// How matrices lie, as the library describes it.
struct Layout {
    library: Arc<CublasLt>,
    raw: cublasLtMatrixLayout_t,
}

// SAFETY: plain data on the heap, which is only read once it is made.
unsafe impl Send for Layout {}
// SAFETY: as above.
unsafe impl Sync for Layout {}

impl Layout {
    /// A stack of our matrices of so many rows and columns: by columns, as the library sees them.
    fn new(
        library: &Arc<CublasLt>,
        data: cudaDataType,
        [rows, columns]: [i64; 2],
        matrix: &Matrix,
        stack: i64,
    ) -> Result<Self> {
        let (height, width) = match matrix.order {
            Order::Rows => (columns, rows),
            Order::Columns => (rows, columns),
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for a write.
        let status = unsafe {
            (library.functions.layout_create)(&mut raw, data, height.unsigned_abs(), width.unsigned_abs(), matrix.pitch)
        };
        check(status, "describe a matrix")?;
        let this = Self { library: Arc::clone(library), raw };
        if let (true, Ok(count)) = (stack > 1, i32::try_from(stack)) {
            this.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count)?;
            this.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.step)?;
        }
        Ok(this)
    }

    fn set<T>(&self, attribute: LayoutAttribute, value: &T) -> Result<()> {
        let place = std::ptr::from_ref(value).cast::<c_void>();
        // SAFETY: the layout is alive, and the value as long as it is said to be.
        check(
            unsafe { (self.library.functions.layout_set)(self.raw, attribute, place, size_of::<T>()) },
            "describe a matrix",
        )
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: it was created once and is not used any more.
        unsafe { (self.library.functions.layout_destroy)(self.raw) };
    }
}

/// What an algorithm must do with.
struct Wishes {
    library: Arc<CublasLt>,
    raw: cublasLtMatmulPreference_t,
}

impl Wishes {
    fn new(library: &Arc<CublasLt>, [first, second, result]: [u32; 3]) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for a write.
        check(unsafe { (library.functions.preference_create)(&mut raw) }, "take preferences")?;
        let this = Self { library: Arc::clone(library), raw };
        // Complex numbers are multiplied part by part.
        this.set(Preference::CUBLASLT_MATMUL_PREF_IMPL_MASK, &!GAUSSIAN)?;
        // Parts of a sum are added by one kernel, in one order.
        let scheme = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        this.set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &(MOST_WORKSPACE as u64))?;
        this.set(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme)?;
        this.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first)?;
        this.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second)?;
        this.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &result)?;
        this.set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result)?;
        Ok(this)
    }

    fn set<T>(&self, attribute: Preference, value: &T) -> Result<()> {
        let place = std::ptr::from_ref(value).cast::<c_void>();
        // SAFETY: the preferences are alive, and the value as long as it is said to be.
        check(
            unsafe { (self.library.functions.preference_set)(self.raw, attribute, place, size_of::<T>()) },
            "take preferences",
        )
    }
}

impl Drop for Wishes {
    fn drop(&mut self) {
        // SAFETY: they were created once and are not used any more.
        unsafe { (self.library.functions.preference_destroy)(self.raw) };
    }
}
