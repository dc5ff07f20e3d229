//! Binds a kernel to arguments: evaluates parameters, grid, block and buffer
//! lengths on the host.
//!
//! Input: a kernel and what is known of the fusion's inputs, in order. Output:
//! a [`BoundLaunch`], the whole of what a back end needs besides memory. Index
//! arithmetic is exact in 64 bits, whatever its type: an overflow of those is
//! the caller's (`E0307`); an argument that then does not fit its type is ours,
//! since lowering chose that type by proof. Arithmetic on data is that of `num`,
//! as in a thread. Both divide by zero to 0: sizes of empty tensors bind, and
//! then nothing is launched.
//!
//! A grid with a zero is legal and means that nothing is launched.

use super::ir::{BufId, Expr, ExprId, IndexOp, Kernel, ParamId, ParamKind, Space, ValueKind};
use super::reciprocals::reciprocal;
use crate::diag::{Diagnostic, Result, code};
use crate::num::{DType, TernaryOp, Value, eval};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::{PrimaryMap, SecondaryMap};

/// A kernel's launch with every number known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundLaunch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Arguments, one for each parameter of the kernel.
    pub params: Vec<BoundParam>,
    /// Length in elements of every buffer of the kernel.
    pub buffer_lens: PrimaryMap<BufId, u64>,
    /// Elements among these that are not the kernel's: of an output, those before and between its own where it is a part of
    /// something else.
    pub gaps: PrimaryMap<BufId, u64>,
    /// Shared memory of a block in bytes, laid out by [`shared_layout`].
    pub shared_bytes: u32,
}

/// The value of a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundParam {
    /// The address of element 0 of a global buffer, as the back end placed it.
    Pointer(BufId),
    /// A number of the given type.
    Scalar {
        /// The type of the argument.
        dtype: DType,
        /// Its value.
        value: Value,
    },
}

impl BoundLaunch {
    /// Whether the grid has no block: there is nothing to launch.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }
    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }
}

/// Where each shared buffer starts in a block's shared memory, in bytes, and
/// the total. Buffers follow each other in id order, each aligned as it demands.
/// Both back ends use this layout. Fails if a length is not constant, or above 32 bits.
pub fn shared_layout(kernel: &Kernel) -> Result<(SecondaryMap<BufId, u32>, u32)> {
    let mut offsets = SecondaryMap::new();
    let mut end = 0u64;
    for (id, buffer) in kernel.buffers.iter().filter(|(_, b)| b.space == Space::Shared) {
        let bug = |what: &str| Diagnostic::bug(format!("shared buffer {id} ({}) {what}", buffer.name));
        let len = kernel.exprs.as_int(buffer.len).and_then(|n| u64::try_from(n).ok());
        let len = len.ok_or_else(|| bug("has no constant length"))?;
        let too_big = || bug("does not fit 32 bits of shared memory");
        let start = end.next_multiple_of(u64::from(buffer.align.max(1)));
        let bytes = len.checked_mul(buffer.dtype.bytes() as u64).ok_or_else(too_big)?;
        end = start.checked_add(bytes).filter(|&end| end <= u64::from(u32::MAX)).ok_or_else(too_big)?;
        offsets.set(id, start as u32);
    }
    Ok((offsets, end as u32))
}

/// Evaluates everything of a launch that depends on the arguments. `args` are
/// the fusion's inputs in order; their agreement with the fusion was checked
/// by [`fusion::bind`](crate::fusion), so a mismatch here is a bug.
pub fn bind(kernel: &Kernel, args: &[ArgMeta]) -> Result<BoundLaunch> {
    let mut host = HostEval { kernel, params: SecondaryMap::new(), memo: SecondaryMap::new() };
    let mut params = Vec::with_capacity(kernel.params.len());
    for (id, param) in kernel.params.iter() {
        let value = match param.kind {
            ParamKind::Input { buffer, .. } | ParamKind::Output { buffer, .. } | ParamKind::Workspace { buffer } => {
                params.push(BoundParam::Pointer(buffer));
                continue;
            }
            ParamKind::Size { input, axis } => Value::Int(axis_of(&tensor_arg(args, input)?.sizes, input, axis)?),
            ParamKind::Stride { input, axis } => Value::Int(axis_of(&tensor_arg(args, input)?.strides, input, axis)?),
            ParamKind::Scalar { input } => scalar_arg(args, input)?,
            ParamKind::Derived(expr) => host.eval(expr)?,
            ParamKind::Reciprocal(divisor) => Value::Int(reciprocal(host.eval(divisor)?.as_i64())),
        };
        let dtype = param.dtype.ok_or_else(|| Diagnostic::bug(format!("scalar parameter {id} has no type")))?;
        let value = fit(value, dtype, || format!("parameter {id} ({})", param.name))?;
        if let Value::Int(number) = value
            && param.multiple_of > 1
            && number % param.multiple_of != 0
        {
            return Err(Diagnostic::bug(format!(
                "parameter {id} ({}) is {number}; the kernel assumes a multiple of {}",
                param.name, param.multiple_of
            )));
        }
        if let (Value::Int(number), Some(most)) = (value, param.at_most)
            && number > most
        {
            let message = format!("parameter {id} ({}) is {number}; the kernel assumes {most} at most", param.name);
            return Err(Diagnostic::bug(message));
        }
        host.params.set(id, Some(value));
        params.push(BoundParam::Scalar { dtype, value });
    }
    let grid = host.dims(kernel.launch.grid, [i32::MAX as u32, 65_535, 65_535], "grid")?;
    let block = if grid.contains(&0) { [1; 3] } else { host.dims(kernel.launch.block, [1024, 1024, 64], "block")? };
    let threads: u64 = block.iter().map(|&n| u64::from(n)).product();
    if threads == 0 || threads > u64::from(kernel.launch.max_threads.min(1024)) {
        return Err(Diagnostic::bug(format!(
            "block {block:?} of kernel {} has {threads} threads; it is compiled for 1 to {}",
            kernel.name, kernel.launch.max_threads
        )));
    }
    let (mut buffer_lens, mut gaps) = (PrimaryMap::new(), PrimaryMap::new());
    for (id, buffer) in kernel.buffers.iter() {
        let len = host.eval(buffer.len)?.as_i64();
        let len = u64::try_from(len)
            .map_err(|_| Diagnostic::bug(format!("buffer {id} ({}) has length {len}", buffer.name)))?;
        if kernel.index_type == DType::I32 && len > i32::MAX as u64 {
            let name = &buffer.name;
            return Err(Diagnostic::bug(format!("buffer {id} ({name}) has {len} elements, its indices are i32")));
        }
        buffer_lens.push(len);
        gaps.push(0);
    }
    let (_, shared_bytes) = shared_layout(kernel)?;
    Ok(BoundLaunch { grid, block, params, buffer_lens, gaps, shared_bytes })
}

fn tensor_arg(args: &[ArgMeta], input: u32) -> Result<&TensorMeta> {
    match args.get(input as usize) {
        Some(ArgMeta::Tensor(meta)) => Ok(meta),
        Some(ArgMeta::Scalar(_)) => {
            Err(Diagnostic::bug(format!("argument {input} is a scalar, the kernel wants a tensor")))
        }
        None => Err(Diagnostic::bug(format!("argument {input} is missing: {} were given", args.len()))),
    }
}

fn scalar_arg(args: &[ArgMeta], input: u32) -> Result<Value> {
    match args.get(input as usize) {
        Some(ArgMeta::Scalar(value)) => Ok(*value),
        Some(ArgMeta::Tensor(_)) => {
            Err(Diagnostic::bug(format!("argument {input} is a tensor, the kernel wants a scalar")))
        }
        None => Err(Diagnostic::bug(format!("argument {input} is missing: {} were given", args.len()))),
    }
}

fn axis_of(numbers: &[i64], input: u32, axis: u32) -> Result<i64> {
    numbers.get(axis as usize).copied().ok_or_else(|| {
        Diagnostic::bug(format!("argument {input} has rank {}, the kernel asks for axis {axis}", numbers.len()))
    })
}

/// Checks that a value belongs to a type: class and integer range.
fn fit(value: Value, dtype: DType, what: impl Fn() -> String) -> Result<Value> {
    if value.class() != dtype.class() {
        return Err(Diagnostic::bug(format!("{} is {value:?}, its type is {dtype}", what())));
    }
    let Value::Int(number) = value else { return Ok(value) };
    let (least, most) = dtype.int_range();
    if (least..=most).contains(&number) {
        Ok(value)
    } else {
        Err(Diagnostic::bug(format!("{} is {number}, beyond its type {dtype}", what())))
    }
}

/// Evaluates expressions over parameters. Values are computed once.
struct HostEval<'a> {
    kernel: &'a Kernel,
    params: SecondaryMap<ParamId, Option<Value>>,
    memo: SecondaryMap<ExprId, Option<Value>>,
}

impl HostEval<'_> {
    fn dims(&mut self, exprs: [ExprId; 3], limits: [u32; 3], what: &str) -> Result<[u32; 3]> {
        let mut dims = [0; 3];
        for (i, name) in ["x", "y", "z"].into_iter().enumerate() {
            let size = self.eval(exprs[i])?.as_i64();
            dims[i] = u32::try_from(size).ok().filter(|&n| n <= limits[i]).ok_or_else(|| {
                let message =
                    format!("{what} size {size} in {name} of kernel {} exceeds {}", self.kernel.name, limits[i]);
                if size < 0 { Diagnostic::bug(message) } else { Diagnostic::unsupported(code::LAUNCH_LIMIT, message) }
            })?;
        }
        Ok(dims)
    }

    fn eval(&mut self, id: ExprId) -> Result<Value> {
        if let Some(value) = self.memo[id] {
            return Ok(value);
        }
        let value = match self.kernel.exprs[id].expr {
            Expr::Param(param) => self.params[param]
                .ok_or_else(|| Diagnostic::bug(format!("parameter {param} is used before it has a value")))?,
            _ => evaluated(self.kernel, id, &mut |operand| self.eval(operand))?,
        };
        self.memo.set(id, Some(value));
        Ok(value)
    }
}

/// The value of an expression of a launch over parameters whose values are told. Allocates
/// nothing, and computes what is shared as often as it is used.
pub fn eval_over(kernel: &Kernel, id: ExprId, param: &dyn Fn(ParamId) -> Result<Value>) -> Result<Value> {
    match kernel.exprs[id].expr {
        Expr::Param(own) => param(own),
        _ => evaluated(kernel, id, &mut |operand| eval_over(kernel, operand, param)),
    }
}

/// The value of an expression from those of its operands.
fn evaluated(kernel: &Kernel, id: ExprId, of: &mut dyn FnMut(ExprId) -> Result<Value>) -> Result<Value> {
    let node = kernel.exprs[id];
    Ok(match node.expr {
        Expr::Const(value) => value,
        Expr::Param(param) => return Err(Diagnostic::bug(format!("parameter {param} has no operands"))),
        Expr::Special(_) | Expr::Var(_) => {
            return Err(Diagnostic::bug(format!("expression {id} of the launch depends on a thread")));
        }
        Expr::Unary(op, a) => eval::unary(op, kernel.exprs.dtype(a), of(a)?),
        Expr::Approx(op, a) => Value::Float(op.eval()(of(a)?.as_f64())),
        Expr::Binary(op, a, b) => {
            let (x, y) = (of(a)?, of(b)?);
            eval::binary(op, kernel.exprs.dtype(a), x, y)
        }
        Expr::Index(op, a, b) => {
            let (x, y) = (of(a)?.as_i64(), of(b)?.as_i64());
            Value::Int(match kernel.exprs.mask_of(op, b) {
                Some(mask) => x & mask,
                None => exact(op, x, y)?,
            })
        }
        Expr::Rounded(a) => of(a)?,
        Expr::AsData(a) | Expr::AsIndex(a) => fit(of(a)?, node.dtype, || format!("expression {id}"))?,
        Expr::Ternary(TernaryOp::Where, condition, a, b) => {
            if of(condition)?.as_bool() {
                of(a)?
            } else {
                of(b)?
            }
        }
        Expr::Ternary(op, a, b, c) => {
            let (x, y, z) = (of(a)?, of(b)?, of(c)?);
            eval::ternary(op, node.dtype, x, y, z)
        }
        Expr::Cast(a) => {
            let (from, value) = (kernel.exprs.dtype(a), of(a)?);
            // Exact for indices: whether it fits is asked of the argument.
            let is_index = kernel.exprs.kind(id) == ValueKind::Index;
            if is_index { value } else { eval::cast(from, node.dtype, value) }
        }
    })
}

/// The exact result of index arithmetic.
fn exact(op: IndexOp, x: i64, y: i64) -> Result<i64> {
    let number = match op {
        IndexOp::Add => x.checked_add(y),
        IndexOp::Sub => x.checked_sub(y),
        IndexOp::Mul => x.checked_mul(y),
        IndexOp::Div | IndexOp::Mod | IndexOp::CeilDiv if y == 0 => Some(0),
        IndexOp::Div => x.checked_div(y),
        IndexOp::Mod => x.checked_rem(y),
        // ceil(x / y) = x / y + (x % y > 0) for x >= 0 and y > 0.
        IndexOp::CeilDiv => x.checked_div(y).and_then(|q| q.checked_add(i64::from(x % y > 0))),
        IndexOp::Min => Some(x.min(y)),
        IndexOp::Max => Some(x.max(y)),
        IndexOp::Xor => Some(x ^ y),
    };
    number.ok_or_else(|| overflow(op.as_binary().name(), x, y))
}

fn overflow(op: &str, x: i64, y: i64) -> Box<Diagnostic> {
    Diagnostic::user(code::SIZE_OVERFLOW, format!("{op} of {x} and {y} overflows 64 bits while computing the launch"))
}

#[cfg(test)]
mod tests {
    use super::super::build::KernelBuilder;
    use super::super::ir::Dim;
    use super::*;
    use crate::num::{BinaryOp, UnaryOp};

    fn tensor(sizes: &[i64], strides: &[i64]) -> ArgMeta {
        ArgMeta::Tensor(TensorMeta { dtype: DType::F32, sizes: sizes.into(), strides: strides.into() })
    }

    /// y[i] = x[i * stride] for i < n, 128 threads a block.
    fn strided_copy() -> Kernel {
        let mut b = KernelBuilder::new("copy", DType::I32);
        let n = b.size("n", 0, 0);
        let stride = b.stride("stride", 0, 0);
        let span = b.exprs().mul(n, stride);
        let x = b.input("x", 0, DType::F32, span, 4);
        let y = b.output("y", 0, DType::F32, n, 4);
        let width = b.int(128);
        let blocks = b.exprs().ceil_div(n, width);
        let blocks = b.derived("blocks", blocks);
        let (bx, tx) = (b.exprs().block_idx(Dim::X), b.exprs().thread_idx(Dim::X));
        let base = b.exprs().mul(bx, width);
        let i = b.exprs().add(base, tx);
        let inside = b.exprs().lt(i, n);
        b.if_(inside, |b| {
            let from = b.exprs().mul(i, stride);
            let value = b.load("v", x, from);
            b.store(y, i, value);
        });
        b.finish_1d(blocks, 128)
    }

    #[test]
    fn launch_numbers_follow_the_arguments() {
        let launch = bind(&strided_copy(), &[tensor(&[1000], &[3])]).unwrap();
        assert_eq!((launch.grid, launch.block), ([8, 1, 1], [128, 1, 1]));
        assert_eq!(launch.buffer_lens.values().copied().collect::<Vec<_>>(), [3000, 1000]);
        let blocks = launch.params.last().unwrap();
        assert_eq!(*blocks, BoundParam::Scalar { dtype: DType::I32, value: Value::Int(8) });
        assert!(!launch.is_empty());
    }

    #[test]
    fn an_empty_tensor_gives_an_empty_launch() {
        assert!(bind(&strided_copy(), &[tensor(&[0], &[1])]).unwrap().is_empty());
    }

    #[test]
    fn numbers_beyond_the_index_type_are_bugs_and_never_wrap() {
        let error = bind(&strided_copy(), &[tensor(&[1 << 20], &[1 << 20])]).unwrap_err();
        assert!(error.message.contains("1099511627776 elements, its indices are i32"), "{error}");
        let error = bind(&strided_copy(), &[tensor(&[1 << 32], &[1])]).unwrap_err();
        assert!(error.message.contains("beyond its type i32"), "{error}");
        let error = bind(&strided_copy(), &[ArgMeta::Scalar(Value::Int(1))]).unwrap_err();
        assert!(error.message.contains("is a scalar"), "{error}");
        assert!(bind(&strided_copy(), &[]).unwrap_err().message.contains("missing"));
    }

    #[test]
    fn derived_numbers_may_be_floats() {
        let mut b = KernelBuilder::new("mean", DType::I64);
        let n = b.size("n", 0, 0);
        let count = b.exprs().as_data(n);
        let count = b.exprs().cast(count, DType::F32);
        let factor = b.exprs().unary(UnaryOp::Reciprocal, count);
        b.derived("factor", factor);
        let low = b.exprs().cast(factor, DType::BF16);
        b.derived("low", low);
        let kernel = b.finish_1d(n, 32);
        let launch = bind(&kernel, &[tensor(&[3], &[1])]).unwrap();
        let value = |i: usize| match launch.params[i] {
            BoundParam::Scalar { value, .. } => value.as_f64(),
            BoundParam::Pointer(_) => panic!("a number is expected"),
        };
        assert_eq!((value(1), value(2)), (f64::from(1.0f32 / 3.0), 0.333_984_375));
    }

    #[test]
    fn data_wraps_and_indices_do_not() {
        let derive = |op: BinaryOp| {
            let mut b = KernelBuilder::new("k", DType::I64);
            let x = b.scalar("x", 0, DType::I64);
            let y = b.scalar("y", 1, DType::I64);
            let data = b.exprs().binary(op, x, y);
            b.derived("data", data);
            let (x, y) = (b.exprs().as_index(x), b.exprs().as_index(y));
            let index = b.exprs().index(IndexOp::from_binary(op).unwrap(), x, y);
            b.derived("index", index);
            let one = b.int(1);
            b.finish_1d(one, 32)
        };
        let run = |op, x, y| bind(&derive(op), &[ArgMeta::Scalar(Value::Int(x)), ArgMeta::Scalar(Value::Int(y))]);
        let values = |op, x, y| {
            let launch: BoundLaunch = run(op, x, y).unwrap();
            [2, 3].map(|i| match launch.params[i] {
                BoundParam::Scalar { value, .. } => value.as_i64(),
                BoundParam::Pointer(_) => panic!("a number is expected"),
            })
        };
        assert_eq!(values(BinaryOp::Mul, 3, 4), [12, 12]);
        assert_eq!(values(BinaryOp::Div, 7, 2), [3, 3]);
        assert_eq!(values(BinaryOp::Mod, 7, 0), [0, 0]);
        let error = run(BinaryOp::Mul, i64::MAX, 2).unwrap_err();
        assert_eq!(error.code, code::SIZE_OVERFLOW);
    }

    #[test]
    fn blocks_beyond_the_limits_are_refused() {
        let mut b = KernelBuilder::new("wide", DType::I64);
        let n = b.size("n", 0, 0);
        let one = b.int(1);
        let kernel = b.finish(super::super::ir::Launch {
            grid: [one, n, one],
            block: [one; 3],
            max_threads: 1,
            min_blocks: 1,
            cooperative: false,
        });
        assert_eq!(bind(&kernel, &[tensor(&[65_535], &[1])]).unwrap().blocks(), 65_535);
        assert_eq!(bind(&kernel, &[tensor(&[65_536], &[1])]).unwrap_err().code, code::LAUNCH_LIMIT);
    }
}
