//! How far a resize moves an axis, and what is proven of that.

use crate::fusion::ScalarId;
use crate::util::entity_id;
use smallvec::SmallVec;

entity_id!(
    /// An offset of a graph.
    pub struct OffsetId, "o"
);

/// `constant + sum of n * scalar`, over scalars of the fusion.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset {
    /// What is known.
    pub constant: i64,
    /// What the sizes decide: scalars, each with its factor.
    pub terms: SmallVec<[(i64, ScalarId); 2]>,
    /// What is proven of the sum.
    pub sign: Sign,
}

/// What is proven of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sign {
    /// It is 0.
    Zero,
    /// It is not below 0.
    NotNegative,
    /// It is not above 0.
    NotPositive,
    /// Nothing.
    Unknown,
}

impl Sign {
    /// Of a number that is known.
    pub fn of(number: i64) -> Self {
        match number {
            0 => Sign::Zero,
            1.. => Sign::NotNegative,
            _ => Sign::NotPositive,
        }
    }

    /// Whether the number is at least 0.
    pub fn is_not_negative(self) -> bool {
        matches!(self, Sign::Zero | Sign::NotNegative)
    }

    /// Whether the number is at most 0.
    pub fn is_not_positive(self) -> bool {
        matches!(self, Sign::Zero | Sign::NotPositive)
    }

    /// What is known of the number with the other sign.
    pub fn negated(self) -> Self {
        match self {
            Sign::NotNegative => Sign::NotPositive,
            Sign::NotPositive => Sign::NotNegative,
            same => same,
        }
    }

    /// What is known of a number of which two things are known.
    pub fn and(self, other: Self) -> Self {
        let not_negative = self.is_not_negative() || other.is_not_negative();
        let not_positive = self.is_not_positive() || other.is_not_positive();
        match (not_negative, not_positive) {
            (true, true) => Sign::Zero,
            (true, false) => Sign::NotNegative,
            (false, true) => Sign::NotPositive,
            (false, false) => Sign::Unknown,
        }
    }
}

impl Offset {
    /// A number.
    pub fn constant(constant: i64) -> Self {
        Self { constant, terms: SmallVec::new(), sign: Sign::of(constant) }
    }

    /// A sum of scalars; what is known of its sign, the caller says.
    pub fn sum(constant: i64, terms: impl IntoIterator<Item = (i64, ScalarId)>, sign: Sign) -> Self {
        let mut sum = Self { constant, terms: terms.into_iter().filter(|(factor, _)| *factor != 0).collect(), sign };
        if sum.terms.is_empty() {
            sum.sign = Sign::of(constant);
        }
        sum
    }

    /// The same with the other sign.
    pub fn negated(&self) -> Self {
        let terms = self.terms.iter().map(|(factor, scalar)| (-factor, *scalar)).collect();
        Self { constant: -self.constant, terms, sign: self.sign.negated() }
    }

    /// Whether it would be written with a minus in front.
    pub fn looks_negative(&self) -> bool {
        self.terms.first().map_or(self.constant, |(factor, _)| *factor) < 0
    }

    /// The number, if sizes do not decide it.
    pub fn known(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }
}
