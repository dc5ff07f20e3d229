//! Every operation that nvFuser's users can write has a row, and every row has
//! rules, values, a text form and a hash. The names are listed here apart from
//! the table, so that none can get lost.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use engine::fusion::ops::{self, OpParamKind, OpRow};
use engine::fusion::{Fusion, bind, hash, layouts};
use engine::num::DType;
use engine::refeval::evaluate_all;
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::text::{parse_one, print};
use std::collections::{BTreeMap, BTreeSet};

/// What nvFuser's Python frontend has, but for the readers of shapes that give
/// lists of scalars: those are `size` of each axis.
const FRONTEND: &str = "
    abs acos acosh asin asinh atan atanh ceil cos cosh exp exp2 expm1 erf erfc erfinv erfcinv floor frac lgamma log
    log10 log1p log2 neg logical_not bitwise_not relu rand_like randn_like reciprocal round rsqrt set segment_set sign
    sigmoid signbit silu sin sinh sqrt tan tanh trunc isfinite isinf isnan isneginf isposinf isreal real imag
    add atan2 div truediv fmod mul nextafter pow remainder sub minimum maximum mod eq ge gt le lt ne logical_and
    logical_or bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift logical_right_shift gcd complex
    lerp where clamp threshold addcmul
    sum prod max min var var_mean welford cumsum cumprod cummin cummax cast triu
    matmul linear grouped_mm scaled_mm cutlass_nvfp4_grouped_mm
    broadcast broadcast_in_dim reshape permute expand squeeze slice pad cat size stride_order
    index_select select gather scatter take_along_axis full iota normal uniform topk argsort
    embedding_fwd sdpfa_fwd sdpfa_bwd nv_block_quantize nv_grouped_block_quantize preprocess_grouped_matmul_input_sf";

/// What only its C++ library or its older frontend has.
const LIBRARY: &str = "
    softmax softmax_backward log_softmax log_softmax_backward layer_norm layer_norm_forward layer_norm_backward rms_norm
    rms_norm_forward rms_norm_backward thunder_rms_norm_backward batch_norm batch_norm_backward instance_norm
    instance_norm_backward mean variance variance_mean standard_deviation dropout dropout_backward gelu gelu_backward
    tanh_gelu tanh_gelu_backward fast_gelu tanh_backward leaky_relu softplus lstm add_alpha sub_alpha repeat flatten eye
    index_put_accumulate ceildiv zeros ones full_like zeros_like ones_like
    rand randn unsqueeze transpose expand_as sum_to arange view_as_real bitcast";

/// Rows that are one operation under several names.
const ALIASES: &[&[&str]] = &[
    &["gelu_tanh", "tanh_gelu", "fast_gelu"],
    &["var", "variance"],
    &["std", "standard_deviation"],
    &["var_mean", "variance_mean"],
    &["set", "cast"],
];

/// A row, its inputs (`dtype[sizes]`, then `<n` for positions below n, or `=` and values), what is
/// computed of them as `%a`, `%b`, ..., and the same with one attribute or
/// extent changed. Rows of operands alone have an example derived from the row.
const EXAMPLES: &[(&str, &str, &str, &str)] = &[
    ("where", "bool[2,3] f32[2,3] f32[2,3]", "where %a, %b, %c", ""),
    ("cast", "f32[2,3]", "cast %a bf16", "cast %a f16"),
    ("sum", "f32[2,3]", "sum %a axes(0) keepdim", "sum %a axes(0)"),
    ("prod", "f32[2,3]", "prod %a axes(1)", "prod %a axes(0)"),
    ("max", "f32[2,3]", "max %a", "max %a keepdim"),
    ("min", "i32[2,3]", "min %a axes(-1)", "min %a axes(0)"),
    ("max_sum_exp", "c64[2,3]", "max_sum_exp %a axes(0)", "max_sum_exp %a axes(1)"),
    ("mean", "f32[2,3]", "mean %a axes(0)", "mean %a axes(1)"),
    ("var", "f32[2,3]", "var %a axes(0)", "var %a axes(0) correction(0)"),
    ("variance", "f32[2,3]", "variance %a axes(0)", "variance %a axes(0) keepdim"),
    ("std", "f32[2,3]", "std %a axes(0)", "std %a axes(0) correction(0)"),
    ("standard_deviation", "f32[2,3]", "standard_deviation %a axes(0)", "standard_deviation %a axes(1)"),
    ("var_mean", "f32[2,3]", "var_mean %a axes(0)", "var_mean %a axes(0) correction(0)"),
    ("variance_mean", "f32[2,3]", "variance_mean %a axes(0)", "variance_mean %a axes(1)"),
    ("welford", "f32[2,3]", "welford %a axes(0)", "welford %a axes(1)"),
    ("cumsum", "f32[2,3]", "cumsum %a dim(0)", "cumsum %a dim(1)"),
    ("cumprod", "f32[2,3]", "cumprod %a dim(0)", "cumprod %a dim(1)"),
    ("cummin", "f32[2,3]", "cummin %a dim(0)", "cummin %a dim(1)"),
    ("cummax", "f32[2,3]", "cummax %a dim(0)", "cummax %a dim(1)"),
    ("triu", "f32[2,3]", "triu %a", "triu %a diagonal(1)"),
    ("tril", "f32[2,3]", "tril %a", "tril %a diagonal(-1)"),
    ("matmul", "bf16[2,3] bf16[3,4]", "matmul %a, %b", "matmul %a, %b dtype(f32)"),
    ("grouped_mm", "bf16[6,4] bf16[2,4,3] i32[2]=2,5", "grouped_mm %a, %b, %c", "grouped_mm %a, %b, %c dtype(f32)"),
    (
        "grouped_sums",
        "bf16[6,4] bf16[2,4,3] i32[2]=2,3 bf16[4,3]",
        "grouped_sums %a, %b, %c",
        "grouped_sums %a, %d, %c",
    ),
    (
        "scaled_mm",
        "f8e4m3fn[4,32] f8e4m3fn[32,8] f32[] f32[]",
        "scaled_mm %a, %b, %c, %d",
        "scaled_mm %a, %b, %c, %d dtype(f32)",
    ),
    (
        "cutlass_nvfp4_grouped_mm",
        "f4e2m1fn[4,64] f4e2m1fn[1,64,3] f8e4m3fn[128,4] f8e4m3fn[1,128,4] f32[1] i32[1,3]=4,3,64 i32[1]=0 i32[1]=0",
        "cutlass_nvfp4_grouped_mm %a, %b, %c, %d, %e, %f, %g, %h",
        "cutlass_nvfp4_grouped_mm %a, %b, %c, %d, %e, %f, %g, %h dtype(f16)",
    ),
    ("nv_block_quantize", "bf16[4,32]", "nv_block_quantize %a", "nv_block_quantize %a swizzle_block_scales"),
    (
        "nv_grouped_block_quantize",
        "bf16[4,32] i32[2]=0,3 i32[2]=0,128 f32[]",
        "nv_grouped_block_quantize %a, %b, %c",
        "nv_grouped_block_quantize %a, %b, %c, %d",
    ),
    (
        "preprocess_grouped_matmul_input_sf",
        "f8e4m3fn[4,4] i32[2]=0,3 i32[2]=0,128",
        "preprocess_grouped_matmul_input_sf %a, %b, %c",
        "",
    ),
    ("linear", "bf16[2,3] bf16[4,3] bf16[4]", "linear %a, %b, %c", "linear %a, %b"),
    ("broadcast", "f32[2,3]", "broadcast %a flags(false, true, false)", "broadcast %a flags(true, false, false)"),
    (
        "broadcast_in_dim",
        "f32[2,3]",
        "broadcast_in_dim [2, 4, 3] %a dims(0, 2)",
        "broadcast_in_dim [4, 2, 3] %a dims(1, 2)",
    ),
    ("reshape", "f32[2,6]", "reshape [3, 4] %a", "reshape [4, 3] %a"),
    ("flatten", "f32[2,3,4]", "flatten %a", "flatten %a start(1)"),
    ("repeat", "f32[2,3]", "repeat %a counts(2, 1)", "repeat %a counts(1, 2)"),
    ("permute", "f32[2,3]", "permute %a dims(1, 0)", "permute %a dims(0, 1)"),
    ("expand_as", "f32[1,3] f32[2,3]", "expand_as %a, %b", ""),
    ("expand", "f32[1,3]", "expand [4, -1] %a", "expand [5, -1] %a"),
    ("squeeze", "f32[1,1]", "squeeze %a dims(0)", "squeeze %a dims(0, 1)"),
    ("slice", "f32[4,5]", "slice %a starts(0, 1) ends(2, 4)", "slice %a starts(0, 1) ends(2, 5)"),
    ("pad", "f32[2,3]", "pad %a widths(1, 2)", "pad %a, 1.0 widths(1, 2)"),
    ("cat", "f32[2,3] f32[2,3]", "cat %a, %b dim(1)", "cat %a, %b"),
    ("sum_of", "f32[2,3] f32[1,3] f32[2,3]", "sum_of %a, %b, %c", "sum_of %c, %b"),
    (
        "size",
        "f32[2,3]",
        "%n = size %a axis(0); %r0 = full [%n] 1.0 f32",
        "%n = size %a axis(1); %r0 = full [%n] 1.0 f32",
    ),
    ("stride_order", "f32[2,3]", "stride_order %a order(0, 1)", "stride_order %a order(1, 0)"),
    ("index_select", "f32[4,3] i64[2]<4", "index_select %a, %b dim(0)", "index_select %a, %b dim(1)"),
    ("select", "f32[4,3]", "select %a, 2 dim(0)", "select %a, 2 dim(1)"),
    ("gather", "f32[3,3] i64[2,3]<3", "gather %a, %b dim(0)", "gather %a, %b dim(1)"),
    ("take_along_axis", "f32[3,3] i64[3,3]<3", "take_along_axis %a, %b dim(0)", "take_along_axis %a, %b dim(1)"),
    ("scatter", "f32[3,3] i64[1,3]<3", "scatter %a, %b, 2.0 dim(0)", "scatter %a, %b, 2.0 dim(1)"),
    ("last_position", "i64[2,3]<3", "last_position %a, 4 dim(0)", "last_position %a, 4 dim(1)"),
    ("index_put_accumulate", "f32[4,3] i64[2]<4 f32[2,3]", "index_put_accumulate %a, %b, %c", ""),
    ("index_counts", "i64[5]<3", "index_counts %a, 3", "index_counts %a, 4"),
    ("index_runs", "i64[5]<3", "%r0, %r1 = index_runs %a, 3", "%r0, %r1 = index_runs %a, 4"),
    (
        "index_put_runs",
        "f32[4,3] i64[4]=0,1,1,2 i64[2]=1,0 f32[2,3]",
        "index_put_runs %a, %b, %c, %d",
        "index_put_runs 1.5, %b, %c, %d dtype(f64)",
    ),
    ("weighted_runs", "i64[4]=0,1,1,2 i64[2]=1,0 f32[2,3] f32[2,2]", "weighted_runs %a, %b, %c, %d", ""),
    ("embedding_fwd", "i64[2,5]<4 f32[4,3]", "embedding_fwd %a, %b", "embedding_fwd %a, %b max_norm(1.0)"),
    ("full", "f32[2]", "full [3, 2] 1.5 f32", "full [2, 3] 1.5 f32"),
    ("zeros", "f32[2]", "zeros [3, 2] f32", "zeros [3, 2] f64"),
    ("ones", "f32[2]", "ones [3, 2] f32", "ones [3, 2] f64"),
    ("full_like", "f32[2]", "full_like %a, 1.5", "full_like %a, 1.5 dtype(f64)"),
    ("index", "f32[2]", "index [3, 2] axis(0)", "index [3, 2] axis(1)"),
    ("iota", "f32[2]", "iota 5", "iota 5, 1"),
    ("arange", "f32[2]", "arange 1, 7, 2", "arange 1, 9, 2"),
    ("eye", "f32[2]", "eye 3 f32", "eye 3, 4 f32"),
    ("rand", "f32[2]", "rand [3, 2] 9, 0", "rand [3, 2] 9, 0 dtype(f64)"),
    ("randn", "f32[2]", "randn [3, 2] 9, 0", "randn [2, 3] 9, 0"),
    ("unsqueeze", "f32[2,3]", "unsqueeze %a dim(0)", "unsqueeze %a dim(1)"),
    ("transpose", "f32[2,3,4]", "transpose %a dim0(0) dim1(2)", "transpose %a dim0(0) dim1(1)"),
    ("sum_to", "f32[2,3]", "sum_to [3] %a", "sum_to [1] %a"),
    ("view_as_real", "c64[2,3]", "view_as_real %a", ""),
    ("bitcast", "f32[2,3]", "bitcast %a i32", "bitcast %a u32"),
    ("uniform", "f32[2]", "uniform [3, 2] 0, 1, 7, 0", "uniform [3, 2] 0, 1, 8, 0"),
    ("normal", "f32[2]", "normal [3, 2] 0, 1, 7, 0", "normal [3, 2] 0, 1, 7, 1"),
    ("rand_like", "f32[2]", "rand_like %a, 7, 0", "rand_like %a, 8, 0"),
    ("randn_like", "f32[2]", "randn_like %a, 7, 0", "randn_like %a, 7, 1"),
    ("topk", "f32[2,5]", "topk %a, 2", "topk %a, 2 largest(false)"),
    ("argsort", "f32[2,5]", "argsort %a dim(1)", "argsort %a dim(1) descending"),
    (
        "sdpfa_fwd",
        "bf16[1,2,4,8] bf16[1,2,6,8] bf16[1,2,6,8]",
        "sdpfa_fwd %a, %b, %c scale(0.5)",
        "sdpfa_fwd %a, %b, %c is_causal(true)",
    ),
    (
        "sdpfa_bwd",
        "bf16[1,2,4,8] bf16[1,2,4,8] bf16[1,2,4,8] bf16[1,2,4,8] bf16[1,2,4,8] f32[1,2,4] u64[2] u64[]",
        "sdpfa_bwd %a, %b, %c, %d, %e, %f, 0.0, false, %g, %h",
        "sdpfa_bwd %a, %b, %c, %d, %e, %f, 0.0, true, %g, %h",
    ),
    ("softmax", "f32[2,3]", "softmax %a", "softmax %a axis(0)"),
    ("log_softmax", "f32[2,3]", "log_softmax %a", "log_softmax %a axis(0)"),
    ("softmax_backward", "f32[2,3] f32[2,3]", "softmax_backward %a, %b", "softmax_backward %a, %b axis(0)"),
    ("log_softmax_backward", "f32[2,3] f32[2,3]", "log_softmax_backward %a, %b", "log_softmax_backward %b, %a"),
    ("layer_norm", "f32[2,3] f32[3]", "layer_norm %a, %b", "layer_norm %a, %b eps(0.5)"),
    ("layer_norm_forward", "f32[2,3]", "layer_norm_forward %a", "layer_norm_forward %a norm_dims(2)"),
    (
        "layer_norm_backward",
        "f32[2,3] f32[2,3] f32[2,1] f32[2,1]",
        "layer_norm_backward %a, %b, %c, %d",
        "layer_norm_backward %a, %b, %c, %d norm_dims(2)",
    ),
    ("rms_norm", "f32[2,3] f32[3]", "rms_norm %a, %b", "rms_norm %a"),
    ("rms_norm_forward", "f32[2,3]", "rms_norm_forward %a", "rms_norm_forward %a eps(0.5)"),
    (
        "rms_norm_backward",
        "f32[2,3] f32[2,3] f32[2,1]",
        "rms_norm_backward %a, %b, %c",
        "rms_norm_backward %a, %b, %c exact",
    ),
    (
        "thunder_rms_norm_backward",
        "f32[2,3] f32[2,3] f32[2,1]",
        "thunder_rms_norm_backward %a, %b, %c",
        "thunder_rms_norm_backward %a, %b, %c exact",
    ),
    (
        "batch_norm",
        "f32[2,3,3] f32[3] f32[3] f32[3] f32[3]",
        "batch_norm %a, %b, %c, %d, %e momentum(0.5)",
        "batch_norm %a, %b, %c, %d, %e channels_last",
    ),
    (
        "instance_norm",
        "f32[2,3,3] f32[3] f32[3]",
        "instance_norm %a running_mean(%b) running_var(%c)",
        "instance_norm %a running_mean(%b) running_var(%c) use_input_stats(false)",
    ),
    (
        "batch_norm_backward",
        "f32[2,3,3] f32[2,3,3] f32[3] f32[3]",
        "batch_norm_backward %a, %b save_mean(%c) save_invstd(%d)",
        "batch_norm_backward %a, %b running_mean(%c) running_var(%d) training(false)",
    ),
    (
        "instance_norm_backward",
        "f32[2,3,3] f32[2,3,3] f32[2,3] f32[2,3]",
        "instance_norm_backward %a, %b save_mean(%c) save_invstd(%d)",
        "instance_norm_backward %a, %b save_mean(%c) save_invstd(%d) channels_last",
    ),
    ("dropout", "f32[2,3]", "dropout %a, 0.5, 7, 0", "dropout %a, 0.25, 7, 0"),
    ("dropout_backward", "f32[2,3] bool[2,3]", "dropout_backward %a, %b, 2.0", "dropout_backward %a, %b, 3.0"),
    ("softplus", "f32[2,3]", "softplus %a", "softplus %a beta(2.0)"),
];

#[test]
fn every_operation_has_a_row_rules_values_text_and_a_hash() {
    let listed: BTreeSet<&str> = [FRONTEND, LIBRARY].iter().flat_map(|names| names.split_whitespace()).collect();
    let mut hashes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut values = 0;
    for row in ops::all() {
        let example = example(row);
        values += example.check();
        hashes.entry(format!("{:?}", hash::structure(&example.fusion(false)))).or_default().push(row.name);
    }
    for names in hashes.into_values().filter(|names| names.len() > 1) {
        let one = ALIASES.iter().any(|alias| names.iter().all(|name| alias.contains(name)));
        assert!(one, "{names:?} have one hash");
    }
    let missing: Vec<_> = listed.iter().filter(|name| ops::find(name).is_none()).collect();
    assert!(missing.is_empty(), "operations without a row: {missing:?}");
    report(&format!("{} rows, {} of them listed; {values} results compared", ops::all().count(), listed.len()));
}

#[allow(clippy::print_stdout, reason = "the count is what the test is read for")]
fn report(text: &str) {
    println!("{text}");
}

/// A statement on some tensors.
struct Example {
    row: &'static OpRow,
    inputs: Vec<HostTensor>,
    body: String,
    changed: String,
}

/// The example of a row: as written above, or of operands alone of the first
/// type that the operation accepts.
fn example(row: &'static OpRow) -> Example {
    let written = EXAMPLES.iter().find(|(name, ..)| *name == row.name);
    if let Some((_, inputs, body, changed)) = written {
        let inputs = inputs.split_whitespace().map(input).collect();
        return Example { row, inputs, body: (*body).into(), changed: (*changed).into() };
    }
    let simple = |kind: OpParamKind| matches!(kind, OpParamKind::Value | OpParamKind::Tensor);
    assert!(row.params.iter().all(|param| simple(param.kind)), "{} needs an example", row.name);
    let operands: Vec<String> = (0..row.params.len()).map(letter).collect();
    for dtype in ["f32", "i64", "bool", "c64"] {
        let inputs = vec![input(&format!("{dtype}[2,3]")); row.params.len()];
        let body = format!("{} {}", row.name, operands.join(", "));
        let example = Example { row, inputs, body, changed: String::new() };
        if parse_one(&example.text(&example.body, false)).is_ok() {
            return example;
        }
    }
    panic!("{} takes operands of no type", row.name)
}

/// `%a`, `%b`, ...
fn letter(i: usize) -> String {
    format!("%{}", char::from(b'a' + i as u8))
}

/// A tensor of `dtype[sizes]`, `dtype[sizes]<n` or `dtype[sizes]=values`.
fn input(text: &str) -> HostTensor {
    let (dtype, rest) = text.split_once('[').unwrap();
    let (sizes, elements) = rest.split_once(']').unwrap();
    let sizes: Vec<i64> = sizes.split(',').filter(|size| !size.is_empty()).map(|size| size.parse().unwrap()).collect();
    let bound: Option<i64> = elements.strip_prefix('<').map(|n| n.parse().unwrap());
    let value = |i: i64| match bound {
        Some(n) => ((i * 7 + 1) % n) as f64,
        None => ((i * 5 + 3) % 8) as f64 / 4.0,
    };
    let values: Vec<f64> = match elements.strip_prefix('=') {
        Some(list) => list.split(',').map(|value| value.parse().unwrap()).collect(),
        None => (0..sizes.iter().product()).map(value).collect(),
    };
    HostTensor::from_f64(DType::from_name(dtype).unwrap(), &sizes, &values).unwrap()
}

impl Example {
    /// The fusion's text with symbolic or constant extents.
    fn text(&self, body: &str, constant: bool) -> String {
        let dim = |size: &i64| if constant || *size == 1 { size.to_string() } else { "?".into() };
        let declared = |(i, tensor): (usize, &HostTensor)| {
            let dims: Vec<String> = tensor.sizes().iter().map(dim).collect();
            format!("{}: {}[{}]", letter(i), tensor.dtype(), dims.join(", "))
        };
        let inputs: Vec<String> = self.inputs.iter().enumerate().map(declared).collect();
        let results: Vec<String> = (0..self.row.results).map(|i| format!("%r{i}")).collect();
        let results = results.join(", ");
        let body = if body.contains(" = ") { body.replace("; ", "\n  ") } else { format!("{results} = {body}") };
        format!("fusion @f({}) {{\n  {body}\n  return {results}\n}}\n", inputs.join(", "))
    }

    fn parsed(&self, body: &str, constant: bool) -> Fusion {
        let text = self.text(body, constant);
        let fusion = parse_one(&text).unwrap_or_else(|errors| panic!("{text}{errors:?}"));
        let printed = print(&fusion);
        assert_eq!(parse_one(&printed).as_ref(), Ok(&fusion), "{printed}");
        fusion
    }

    fn fusion(&self, constant: bool) -> Fusion {
        self.parsed(&self.body, constant)
    }

    /// Rules and values agree, on symbols and on numbers; hashes are stable and
    /// tell changes. Returns how many results were compared.
    fn check(&self) -> usize {
        let name = self.row.name;
        let args: Vec<Arg> = self.inputs.iter().cloned().map(Arg::Tensor).collect();
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let (symbolic, constant) = (self.fusion(false), self.fusion(true));
        let [outputs, same] = [&symbolic, &constant].map(|fusion| {
            let outputs = evaluate_all(fusion, &args).unwrap_or_else(|error| panic!("{name}: {error}")).outputs;
            let bindings = bind(fusion, &metas).unwrap();
            let layouts = layouts(fusion, &bindings, &metas).unwrap();
            for (&id, output) in fusion.outputs.iter().zip(&outputs) {
                let tensor = &fusion.tensors[id];
                assert_eq!(
                    (tensor.dtype, bindings.sizes(fusion, id)),
                    (output.dtype(), output.sizes().to_vec()),
                    "{name}"
                );
                assert_eq!(output.meta, layouts[id], "{name}: strides");
            }
            outputs
        });
        for (a, b) in outputs.iter().zip(&same) {
            assert!(a.meta == b.meta && a.bits_equal(b), "{name}: symbolic and constant extents differ");
        }
        let own = hash::structure(&symbolic);
        assert_eq!(own, hash::structure(&self.fusion(false)), "{name}");
        if self.inputs.iter().any(|tensor| tensor.sizes().iter().any(|&size| size != 1)) {
            assert_ne!(own, hash::structure(&constant), "{name}: extents");
        }
        let has_attributes =
            self.row.params.iter().any(|param| !matches!(param.kind, OpParamKind::Tensor | OpParamKind::Value));
        if self.changed.is_empty() {
            assert!(!has_attributes, "{name}: needs a change");
        } else {
            assert_ne!(own, hash::structure(&self.parsed(&self.changed, false)), "{name}: {}", self.changed);
        }
        outputs.len()
    }
}

/// The result of a row on operands that are all tensors of rank 0 or all
/// scalars; of its first result, as a tensor of a type. `None` if it is refused.
fn on_one_value(row: &OpRow, dtype: DType, values: &[f64], scalars: Option<DType>) -> Option<HostTensor> {
    let place = if scalars.is_some() { "" } else { "[]" };
    let inputs: Vec<String> = (0..values.len()).map(|i| format!("{}: {dtype}{place}", letter(i))).collect();
    let operands: Vec<String> = (0..values.len()).map(letter).collect();
    let results: Vec<String> = (0..row.results).map(|i| format!("%r{i}")).collect();
    let last = match scalars {
        Some(dtype) => format!("%r = full [] %r0 {dtype}"),
        None => "%r = set %r0".into(),
    };
    let statement = format!("{} = {} {}", results.join(", "), row.name, operands.join(", "));
    let text = format!("fusion @f({}) {{\n  {statement}\n  {last}\n  return %r\n}}\n", inputs.join(", "));
    let fusion = parse_one(&text).ok()?;
    assert_eq!(parse_one(&print(&fusion)).as_ref(), Ok(&fusion), "{text}");
    let arg = |value: &f64| {
        let tensor = HostTensor::from_f64(dtype, &[], &[*value]).unwrap();
        if scalars.is_some() { Arg::Scalar(tensor.get(&[])) } else { Arg::Tensor(tensor) }
    };
    let args: Vec<Arg> = values.iter().map(arg).collect();
    Some(evaluate_all(&fusion, &args).unwrap_or_else(|error| panic!("{text}{error}")).outputs.remove(0))
}

#[test]
fn scalars_compute_what_tensors_of_one_element_do() {
    let mut compared = 0;
    for row in ops::all().filter(|row| row.params.iter().all(|param| param.kind == OpParamKind::Value)) {
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::I64, DType::I32, DType::U8, DType::Bool, DType::C64] {
            for values in [[1.0, 3.0, 2.0, 1.0, 2.0], [0.0, 1.0, 1.0, 0.0, 0.0], [2.0, 0.5, 0.25, 3.0, 1.0]] {
                let values = &values[..row.params.len()];
                let tensor = on_one_value(row, dtype, values, None);
                let kind = tensor.as_ref().map_or(DType::F32, HostTensor::dtype);
                let scalar = on_one_value(row, dtype, values, Some(kind));
                let agrees = match (&tensor, &scalar) {
                    (Some(tensor), Some(scalar)) => tensor.bits_equal(scalar),
                    (None, None) => true,
                    _ => false,
                };
                assert!(agrees, "{} on {dtype} {values:?}: {tensor:?} and {scalar:?}", row.name);
                compared += usize::from(tensor.is_some());
            }
        }
    }
    report(&format!("{compared} values of scalars compared"));
}
