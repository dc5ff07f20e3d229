//! Complex functions at points of every kind, and identities between them.

#![allow(clippy::approx_constant, reason = "values as another implementation printed them")]

use super::*;

/// Relative to the magnitude of the expected value.
fn check_near(what: &str, actual: Complex, expected: Complex, tolerance: f64) {
    let error = (actual.0 - expected.0).hypot(actual.1 - expected.1) / expected.0.hypot(expected.1);
    assert!(actual == expected || error < tolerance, "{what}: {actual:?}, expected {expected:?}");
}

/// Parts equal bit for bit, but that any NaN equals any.
fn check_exact(what: &str, actual: Complex, expected: Complex) {
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let equal = same(actual.0, expected.0) && same(actual.1, expected.1);
    assert!(equal, "{what}: {actual:?}, expected {expected:?}");
}

/// Values to 200 bits, rounded.
#[rustfmt::skip]
#[test]
fn elementary_functions_are_accurate() {
    use UnaryOp::*;
    const POINTS: [Complex; 5] = [(0.75, -1.25), (-2.5, 0.5), (1e-3, 2e-3), (0.8, 0.6), (30.0, -40.0)];
    for (op, expected) in [
        (Acos, [(1.1175201491561026, 1.1323936316053083), (2.927631668248469, -1.5919125928575535), (1.5697963286282268, -0.0019999996666638167), (0.8860771237926136, -0.7127084715353063), (0.9273912099354166, 4.605198198633584)]),
        (Acosh, [(1.1323936316053083, -1.1175201491561026), (1.5919125928575535, 2.927631668248469), (0.0019999996666638167, 1.5697963286282268), (0.7127084715353063, 0.8860771237926136), (4.605198198633584, -0.9273912099354166)]),
        (Asin, [(0.4532761776387939, -1.1323936316053083), (-1.356835341453572, 1.5919125928575535), (0.0009999981666697416, 0.0019999996666638167), (0.684719203002283, 0.7127084715353063), (0.6434051168594801, -4.605198198633584)]),
        (Asinh, [(1.0317185344477802, -0.9117382909684877), (-1.6630597397306994, 0.18401992624231417), (0.0010000018333364083, 0.0020000003333304835), (0.8047189562170503, 0.4636476090008061), (4.605142198638598, -0.9271992099398095)]),
        (Atan, [(1.1071487177940904, -0.5493061443340549), (-1.201888796734664, 0.06706599664866984), (0.0010000036666748667, 0.0020000006666590665), (0.7853981633974483, 0.34657359027997264), (1.5587938308436131, -0.015999060695138845)]),
        (Atanh, [(0.2614921387956719, -0.9968251264639186), (-0.40235947810852507, 1.4808695768986575), (0.0009999963333415334, 0.0019999993333257335), (0.5493061443340549, 0.7853981633974483), (0.011997503951641293, -1.554795388766349)]),
        (Cos, [(1.3817387306342588, 1.0919301355539746), (-0.9033903427500408, 0.3118610247613492), (1.0000014999997084, -2.000001000000061e-06), (0.8259215712470895, -0.4567073249470405), (1.8154259345893096e+16, -1.1628404374025626e+17)]),
        (Cosh, [(0.4082425918779688, -0.7803659308458533), (5.381590311816638, -2.9006225419880627), (0.9999984999997084, 1.999999000000061e-06), (1.1038326938102014, 0.5014623584193467), (-3563608321649.0454, -3981316424910.959)]),
        (Exp, [(0.6675374464291316, -2.009000454940949), (0.07203636338512882, 0.03935364467658794), (1.0009984981663753, 0.00200199966566635), (1.8368181907239873, 1.2566349345058705), (-7127216643298.091, -7962632849821.918)]),
        (Exp2, [(1.0890416797598363, -1.2815675341128394), (0.16626592505324736, 0.060046999643512046), (1.0006924258904266, 0.001387255155908624), (1.592685840509685, 0.7034095154749859), (-916261913.4397255, -559808548.1542952)]),
        (Expm1, [(-0.3324625535708684, -2.009000454940949), (-0.9279636366148711, 0.03935364467658794), (0.000998498166375342, 0.00200199966566635), (0.8368181907239872, 1.2566349345058705), (-7127216643299.091, -7962632849821.918)]),
        (Log, [(0.3768859011881901, -1.0303768265243125), (0.9359010884507957, 2.9441970937399127), (-6.103036322765087, 1.1071487177940904), (2.2204460492503132e-17, 0.6435011087932844), (3.912023005428146, -0.9272952180016122)]),
        (Log10, [(0.16367946719316517, -0.4474869700404931), (0.4064566783214278, 1.278648551446835), (-2.6505149978319906, 0.48082857878423413), (9.643274665532871e-18, 0.2794689806475475), (1.6989700043360187, -0.40271919627337316)]),
        (Log1p, [(0.7657381854821943, -0.6202494859828215), (0.45814536593707755, 2.819842099193151), (0.001001496335091514, 0.0019979993393257262), (0.6404669227310322, 0.3217505543966422), (3.924076543099763, -0.9114862584620388)]),
        (Log2, [(0.5437314206251697, -1.4865195378735334), (1.350219859070546, 4.2475785465382705), (-8.804820237218406, 1.5972779646881088), (3.203426503814918e-17, 0.9283758584626206), (5.643856189774724, -1.3378042124509761)]),
        (Reciprocal, [(0.35294117647058826, 0.5882352941176471), (-0.38461538461538464, -0.07692307692307693), (200.0, -400.0), (0.8, -0.6), (0.012, 0.016)]),
        (Rsqrt, [(0.7207411175452055, 0.4080766864815038), (0.0617125824325293, -0.6232365742203168), (17.98907439947867, -11.117859405028423), (0.9486832980505138, -0.3162277660168379), (0.12649110640673517, 0.06324555320336758)]),
        (Sigmoid, [(0.7553769713265477, -0.2947146865855311), (0.06845114681305348, 0.03419645435481561), (0.5002500002291668, 0.0005000000416665875), (0.7053167354212782, 0.1305368409208315), (1.0000000000000624, -6.97248802488752e-14)]),
        (Silu, [(0.19813937026299688, -1.1652572290973329), (-0.1882260942100415, -0.05126556248051229), (0.0004992500001458336, 0.0010010000005000002), (0.48593128378452366, 0.5276195139894321), (29.999999999999083, -40.00000000000459)]),
        (Sin, [(1.2872229100264918, -1.1721063598927026), (-0.6748527291443561, -0.4174721770877947), (0.001000001833333675, 0.0020000003333330166), (0.8504006948556228, 0.4435608222125864), (-1.1628404374025626e+17, -1.8154259345893096e+16)]),
        (Sinh, [(0.2592948545511628, -1.2286345240950955), (-5.3095539484315095, 2.9399761866646505), (0.0009999981666670083, 0.00199999966666635), (0.7329854969137857, 0.7551725760865238), (-3563608321649.0454, -3981316424910.959)]),
        (Sqrt, [(1.050651696260784, -0.594868882070379), (0.1573368310288351, 1.5889477267670564), (0.04022479320953552, 0.02486028939392892), (0.9486832980505138, 0.31622776601683794), (6.324555320336759, -3.1622776601683795)]),
        (Tan, [(0.16080778591620642, -0.9753632850312356), (0.5249366599491873, 0.643331497240894), (0.0009999963333388, 0.0019999993333282666), (0.561099223207919, 0.8473188881809383), (-1.1002757450527177e-35, -1.0)]),
        (Tanh, [(1.3726075705337832, -0.3857959526097507), (-0.9926817603046373, 0.01125709914625195), (0.0010000036666721333, 0.0020000006666616), (0.808065172259716, 0.31703926782658287), (1.0, 1.7405993390003985e-26)]),
    ] {
        for (z, expected) in POINTS.into_iter().zip(expected) {
            check_near(&format!("{op}{z:?}"), unary_complex(op)(z), expected, 1e-15);
        }
    }
}

#[test]
fn every_accepted_operation_has_a_complex_form() {
    for dtype in [DType::C64, DType::C128] {
        let z = Value::Complex(0.5, -0.25);
        for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
            let result = unary(op, dtype, z);
            assert_eq!(result.class(), op.result_dtype(dtype).class(), "{op}");
            assert!(!result.as_complex().0.is_nan() && !result.as_complex().1.is_nan(), "{op} of {z:?} is {result:?}");
        }
        for &op in BinaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
            let result = binary(op, dtype, z, Value::Complex(2.0, 1.0));
            assert!(!result.as_complex().0.is_nan(), "{op}");
        }
        assert_eq!(unary(UnaryOp::Abs, dtype, Value::Complex(3.0, -4.0)), Float(5.0));
        assert_eq!(unary(UnaryOp::Imag, dtype, z), Float(-0.25));
    }
    assert_eq!(binary(BinaryOp::Complex, DType::F32, Float(1.5), Float(-2.0)), Value::Complex(1.5, -2.0));
}

#[test]
fn arithmetic_rounds_once_to_the_parts() {
    let (a, b) = (Value::Complex(1.0, 2.0), Value::Complex(3.0, -1.0));
    for (op, expected) in [
        (BinaryOp::Add, (4.0, 1.0)),
        (BinaryOp::Sub, (-2.0, 3.0)),
        (BinaryOp::Mul, (5.0, 5.0)),
        (BinaryOp::Div, (f64::from(0.1f32), f64::from(0.7f32))),
    ] {
        assert_eq!(binary(op, DType::C64, a, b), Value::Complex(expected.0, expected.1), "{op}");
    }
    assert_eq!(binary(BinaryOp::Eq, DType::C64, a, a), Bool(true));
    assert_eq!(binary(BinaryOp::Ne, DType::C64, a, b), Bool(true));
    assert_eq!(unary(UnaryOp::IsReal, DType::C64, Value::Complex(1.0, -0.0)), Bool(true));
    let weights = [(0.0, a), (1.0, b)];
    for (weight, expected) in weights {
        assert_eq!(ternary(TernaryOp::Lerp, DType::C64, a, b, Value::Complex(weight, 0.0)), expected);
    }
}

#[test]
fn special_values_follow_the_c_standard() {
    use UnaryOp::*;
    let pi = std::f64::consts::PI;
    for (op, z, expected) in [
        (Exp, (-INF, INF), (0.0, 0.0)),
        (Exp, (INF, 0.0), (INF, 0.0)),
        (Exp, (INF, f64::NAN), (INF, f64::NAN)),
        (Log, (0.0, 0.0), (-INF, 0.0)),
        (Log, (-0.0, -0.0), (-INF, -pi)),
        (Log, (-INF, INF), (INF, 0.75 * pi)),
        (Sqrt, (-1.0, 0.0), (0.0, 1.0)),
        (Sqrt, (-1.0, -0.0), (0.0, -1.0)),
        (Sqrt, (f64::NAN, INF), (INF, INF)),
        (Sqrt, (-INF, 1.0), (0.0, INF)),
        (Sinh, (0.0, INF), (0.0, f64::NAN)),
        // What C leaves open is as on devices.
        (Sinh, (-INF, INF), (-INF, f64::NAN)),
        (Sinh, (-INF, f64::NAN), (-INF, f64::NAN)),
        (Sin, (INF, INF), (f64::NAN, INF)),
        (Sin, (f64::NAN, -INF), (f64::NAN, -INF)),
        (Asinh, (f64::NAN, -INF), (-INF, f64::NAN)),
        (Asinh, (f64::NAN, 0.0), (f64::NAN, 0.0)),
        (Acos, (-INF, f64::NAN), (f64::NAN, -INF)),
        (Acos, (0.0, f64::NAN), (pi / 2.0, f64::NAN)),
        (Cosh, (-INF, f64::NAN), (INF, f64::NAN)),
        (Tanh, (INF, 1.0), (1.0, 0.0)),
        (Atanh, (1.0, 0.0), (INF, 0.0)),
        (Atanh, (INF, -1.0), (0.0, -pi / 2.0)),
        (Reciprocal, (0.0, 0.0), (INF, f64::NAN)),
    ] {
        check_exact(&format!("{op}{z:?}"), unary_complex(op)(z), expected);
    }
    let pow = binary_complex(BinaryOp::Pow);
    check_exact("0^0", pow((0.0, 0.0), (0.0, 0.0)), (f64::NAN, f64::NAN));
    check_exact("0^2", pow((0.0, 0.0), (2.0, 0.0)), (0.0, 0.0));
    check_exact("i^2", pow((0.0, 1.0), (2.0, 0.0)), (-1.0, 0.0));
    let div = binary_complex(BinaryOp::Div);
    check_exact("1/0", div((1.0, -1.0), (0.0, 0.0)), (INF, -INF));
    check_exact("no overflow in between", div((1e300, 1e300), (1e300, 1e300)), (1.0, 0.0));
}

#[test]
fn inverse_functions_invert() {
    use UnaryOp::*;
    crate::property::property(|u| {
        let mut part = || -> arbtest::arbitrary::Result<f64> {
            let exponent = u.int_in_range(-12..=1)?;
            Ok(f64::from(u.int_in_range(-1_000_000..=1_000_000)?) / 1e6 * 10f64.powi(exponent))
        };
        let z = (part()?, part()?);
        let near_one = (z.0 - 1.0).hypot(z.1).min((z.0 + 1.0).hypot(z.1));
        for (inverse, function) in
            [(Log, Exp), (Asin, Sin), (Acos, Cos), (Asinh, Sinh), (Acosh, Cosh), (Atan, Tan), (Atanh, Tanh)]
        {
            let singular = matches!(inverse, Atan | Atanh) && near_one.min(z.0.hypot(z.1 - 1.0)) < 1e-3;
            if z != (0.0, 0.0) && !singular && z.0.hypot(z.1 + 1.0) > 1e-3 {
                let back = unary_complex(function)(unary_complex(inverse)(z));
                // A cosine cannot resolve a small number, nor its inverse one near its branch points.
                let scale = if matches!(inverse, Acos | Acosh) { 1.0f64.max(z.0.hypot(z.1)) } else { z.0.hypot(z.1) };
                let error = (back.0 - z.0).hypot(back.1 - z.1) / scale;
                assert!(error < 2e-13, "{function}({inverse}{z:?}) = {back:?}");
            }
        }
        let root = unary_complex(Sqrt)(z);
        check_near("the square of the root", binary_complex(BinaryOp::Mul)(root, root), z, 1e-15);
        Ok(())
    });
}
