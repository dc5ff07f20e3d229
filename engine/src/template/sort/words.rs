//! What is sorted: elements as integers in their order, with their positions.
//!
//! The bits of an element, of which NaN is the greatest and the zeros are equal, are a *key*; where key and position fit
//! an integer they are one, `key 2^k + position`, else two. So no two elements of a line are equal, but the keys of some
//! may be. Of all that there is, *nothing* is the greatest.

use super::super::share::as_data;
use crate::kernel::{BufId, CacheHint, ExprId, KernelBuilder, ShuffleMode};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};

/// Positions of short lines: each has 16 bits of a word, one of which is nothing's.
pub(super) const SHORT: i64 = u16::MAX as i64;

/// How an element and its position are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// Sixteen bits each, of an `i32`.
    Half,
    /// Thirty-two bits each, of an `i64`.
    Whole,
    /// An `i64` and an `i32`.
    Pair,
}

impl Form {
    /// For lines of a length, of elements of a type.
    pub(super) fn of(dtype: DType, length: i64) -> Self {
        match dtype.bits() {
            0..=16 if length <= SHORT => Self::Half,
            0..=32 => Self::Whole,
            _ => Self::Pair,
        }
    }

    /// The type of its first number.
    fn word(self) -> DType {
        if self == Self::Half { DType::I32 } else { DType::I64 }
    }

    /// One more than the greatest position, where it is in the word.
    fn scale(self) -> i64 {
        match self {
            Self::Half => 1 << 16,
            Self::Whole => 1 << 32,
            Self::Pair => 1,
        }
    }
}

/// The type as which an element of a type is read: its bits.
pub(super) fn bits_of(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::I64,
        DType::F32 => DType::I32,
        DType::F16 | DType::BF16 => DType::I16,
        DType::F8E4M3FN | DType::F8E5M2 => DType::I8,
        DType::F8E8M0FNU | DType::F4E2M1FN | DType::Bool => DType::U8,
        other => other,
    }
}

/// The greatest magnitude that is a number, of floats whose first bit is their sign.
fn infinity(dtype: DType) -> Option<i64> {
    Some(match dtype {
        DType::F64 => 0x7ff0_0000_0000_0000,
        DType::F32 => 0x7f80_0000,
        DType::F16 => 0x7c00,
        DType::BF16 => 0x7f80,
        DType::F8E4M3FN => 0x7e,
        DType::F8E5M2 => 0x7c,
        _ => return None,
    })
}

/// How elements of a type are held and compared.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) form: Form,
    pub(super) dtype: DType,
    /// The greatest key is the least.
    pub(super) descending: bool,
}

/// An element and its position.
#[derive(Clone, Copy)]
pub(super) struct Item {
    word: ExprId,
    place: Option<ExprId>,
}

/// An array of items.
#[derive(Clone, Copy)]
pub(super) struct Items {
    words: BufId,
    places: Option<BufId>,
}

impl Words {
    fn number(self, b: &mut KernelBuilder, value: i64) -> ExprId {
        b.exprs().value(Value::Int(value), self.form.word())
    }

    /// Registers of a thread for so many items.
    pub(super) fn local(self, b: &mut KernelBuilder, len: i64) -> Items {
        let places = (self.form == Form::Pair).then(|| b.local("places", DType::I32, len));
        Items { words: b.local("words", self.form.word(), len), places }
    }

    /// Memory of a block for so many items.
    pub(super) fn shared(self, b: &mut KernelBuilder, len: i64) -> Items {
        let places = (self.form == Form::Pair).then(|| b.shared("tile_places", DType::I32, len, 16));
        Items { words: b.shared("tile", self.form.word(), len, 16), places }
    }

    /// Memory of the device for so many items.
    pub(super) fn workspace(self, b: &mut KernelBuilder, name: &str, len: ExprId) -> Items {
        let places =
            (self.form == Form::Pair).then(|| b.workspace(format!("{name}_places"), DType::I32, len, 16, false));
        Items { words: b.workspace(name, self.form.word(), len, 16, false), places }
    }

    /// An element of these bits at a position along its line.
    pub(super) fn item(self, b: &mut KernelBuilder, bits: ExprId, at: ExprId) -> Item {
        let bits = b.exprs().cast(bits, self.form.word());
        let mut key = self.key_of(b, bits);
        if self.descending {
            key = b.exprs().unary(UnaryOp::BitwiseNot, key);
        }
        if self.form == Form::Pair {
            return Item { word: key, place: Some(as_data(b, at, DType::I32)) };
        }
        let (at, scale) = (as_data(b, at, self.form.word()), self.number(b, self.form.scale()));
        let word = b.exprs().binary(BinaryOp::Mul, key, scale);
        Item { word: b.exprs().binary(BinaryOp::Add, word, at), place: None }
    }

    /// An integer that is as great among such as the element of these bits is, but that NaN is the greatest.
    fn key_of(self, b: &mut KernelBuilder, bits: ExprId) -> ExprId {
        let zero = self.number(b, 0);
        match (self.dtype, infinity(self.dtype)) {
            (dtype, Some(infinity)) => {
                let mask = self.number(b, i64::MAX >> (64 - dtype.bits()));
                let magnitude = b.exprs().binary(BinaryOp::BitwiseAnd, bits, mask);
                let is_negative = b.exprs().binary(BinaryOp::Lt, bits, zero);
                let negative = b.exprs().unary(UnaryOp::Neg, magnitude);
                let number = b.exprs().ternary(TernaryOp::Where, is_negative, negative, magnitude);
                let infinity = self.number(b, infinity);
                let is_number = b.exprs().binary(BinaryOp::Le, magnitude, infinity);
                b.exprs().ternary(TernaryOp::Where, is_number, number, mask)
            }
            // A sign and three bits.
            (DType::F4E2M1FN, _) => {
                let sign = self.number(b, 8);
                let is_positive = b.exprs().binary(BinaryOp::Lt, bits, sign);
                let negative = b.exprs().binary(BinaryOp::Sub, sign, bits);
                b.exprs().ternary(TernaryOp::Where, is_positive, bits, negative)
            }
            // A word has room for numbers of both signs.
            (DType::U16 | DType::U32, _) => {
                let half = self.number(b, 1 << (self.dtype.bits() - 1));
                b.exprs().binary(BinaryOp::Sub, bits, half)
            }
            // Read as a signed number the upper half is the lower one.
            (DType::U64, _) => {
                let half = self.number(b, i64::MIN);
                b.exprs().binary(BinaryOp::BitwiseXor, bits, half)
            }
            _ => bits,
        }
    }

    /// What comes behind all elements.
    pub(super) fn nothing(self, b: &mut KernelBuilder) -> Item {
        let most = if self.form == Form::Half { i32::MAX.into() } else { i64::MAX };
        let last = || Value::Int(i32::MAX.into());
        let place = (self.form == Form::Pair).then(|| b.exprs().value(last(), DType::I32));
        Item { word: self.number(b, most), place }
    }

    /// Whether it is an element.
    pub(super) fn is_some(self, b: &mut KernelBuilder, item: Item) -> ExprId {
        let nothing = self.nothing(b);
        self.is_before(b, item, nothing)
    }

    /// The position of an element, an `i32`.
    pub(super) fn place(self, b: &mut KernelBuilder, item: Item) -> ExprId {
        if let Some(place) = item.place {
            return place;
        }
        let mask = self.number(b, self.form.scale() - 1);
        let place = b.exprs().binary(BinaryOp::BitwiseAnd, item.word, mask);
        b.exprs().cast(place, DType::I32)
    }

    /// The key of an item, or a multiple of it.
    pub(super) fn key(self, b: &mut KernelBuilder, item: Item) -> ExprId {
        let mask = self.number(b, -self.form.scale());
        b.exprs().binary(BinaryOp::BitwiseAnd, item.word, mask)
    }

    /// Whether an item comes before another one, by key and then by position.
    pub(super) fn is_before(self, b: &mut KernelBuilder, one: Item, other: Item) -> ExprId {
        let is_less = b.exprs().binary(BinaryOp::Lt, one.word, other.word);
        let (Some(first), Some(second)) = (one.place, other.place) else { return is_less };
        let is_equal = b.exprs().binary(BinaryOp::Eq, one.word, other.word);
        let is_ahead = b.exprs().binary(BinaryOp::Lt, first, second);
        let is_ahead = b.exprs().binary(BinaryOp::LogicalAnd, is_equal, is_ahead);
        b.exprs().binary(BinaryOp::LogicalOr, is_less, is_ahead)
    }

    /// One of two items, by a condition.
    pub(super) fn choose(self, b: &mut KernelBuilder, condition: ExprId, one: Item, other: Item) -> Item {
        let word = b.exprs().ternary(TernaryOp::Where, condition, one.word, other.word);
        let places = one.place.zip(other.place);
        let place = places.map(|(one, other)| b.exprs().ternary(TernaryOp::Where, condition, one, other));
        Item { word, place }
    }

    /// The first of two items, and the second.
    pub(super) fn in_order(self, b: &mut KernelBuilder, one: Item, other: Item) -> [Item; 2] {
        if self.form != Form::Pair {
            let ops = [BinaryOp::Minimum, BinaryOp::Maximum];
            return ops.map(|op| Item { word: b.exprs().binary(op, one.word, other.word), place: None });
        }
        let is_before = self.is_before(b, one, other);
        let is_before = b.let_("is_before", is_before);
        [self.choose(b, is_before, one, other), self.choose(b, is_before, other, one)]
    }

    /// An item with the same position and another key, which is small and not negative.
    pub(super) fn with_key(self, b: &mut KernelBuilder, item: Item, key: ExprId) -> Item {
        let key = b.exprs().cast(key, self.form.word());
        let Some(place) = item.place else {
            let (place, scale) = (self.place(b, item), self.number(b, self.form.scale()));
            let place = b.exprs().cast(place, self.form.word());
            let word = b.exprs().binary(BinaryOp::Mul, key, scale);
            return Item { word: b.exprs().binary(BinaryOp::Add, word, place), place: None };
        };
        Item { word: key, place: Some(place) }
    }

    pub(super) fn load(self, b: &mut KernelBuilder, from: Items, at: ExprId, hint: CacheHint) -> Item {
        let word = b.load_hinted("word", from.words, at, hint);
        Item { word, place: from.places.map(|places| b.load_hinted("place", places, at, hint)) }
    }

    pub(super) fn store(self, b: &mut KernelBuilder, to: Items, at: ExprId, item: Item, hint: CacheHint) {
        b.store_hinted(to.words, at, item.word, hint);
        if let (Some(places), Some(place)) = (to.places, item.place) {
            b.store_hinted(places, at, place, hint);
        }
    }

    /// The item of another lane.
    pub(super) fn shuffle(self, b: &mut KernelBuilder, item: Item, mode: ShuffleMode, lane: ExprId) -> Item {
        let word = b.shuffle("other", item.word, mode, lane);
        Item { word, place: item.place.map(|place| b.shuffle("other_place", place, mode, lane)) }
    }

    /// An item that is computed once.
    pub(super) fn named(self, b: &mut KernelBuilder, item: Item) -> Item {
        Item { word: b.let_("item", item.word), place: item.place.map(|place| b.let_("item_place", place)) }
    }
}
