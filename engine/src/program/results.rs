//! Whose memory the results of a program are in.

use super::{Program, Storage};
use crate::tensor::TensorMeta;

/// Whose memory a result is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultMemory {
    /// Its own.
    Own,
    /// That of an argument: one that is updated and returned, or of which the result is a view.
    Argument {
        /// Which one.
        position: u32,
        /// From the argument's element 0, in bytes.
        offset: u64,
    },
    /// That of another result, which has memory of its own.
    Result {
        /// Which one.
        position: u32,
        /// From that one's element 0, in bytes.
        offset: u64,
    },
}

impl Program {
    /// Whose memory each result is in.
    pub fn result_memories(&self) -> impl Iterator<Item = ResultMemory> {
        self.outputs.iter().enumerate().map(|(own, value)| {
            let (root, offset) = self.root(*value);
            match self.values[root].storage {
                Storage::Input(position) => ResultMemory::Argument { position, offset },
                Storage::Output(position) if position as usize != own => ResultMemory::Result { position, offset },
                Storage::Output(_) | Storage::Arena { .. } | Storage::AliasOf { .. } => ResultMemory::Own,
            }
        })
    }

    /// Type and layout of each result as a caller gets it: what lies in memory of something else,
    /// as it lies there.
    pub fn result_metas(&self) -> impl Iterator<Item = &TensorMeta> {
        let results = self.result_memories().zip(&self.outputs).zip(&self.segments.outputs);
        results.map(|((memory, value), meta)| match memory {
            ResultMemory::Own => meta,
            ResultMemory::Argument { .. } | ResultMemory::Result { .. } => &self.values[*value].meta,
        })
    }

    /// Results that lie in memory of an argument, or of another result.
    pub fn aliases(&self) -> usize {
        self.result_memories().filter(|memory| *memory != ResultMemory::Own).count()
    }
}

impl std::fmt::Display for ResultMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own => write!(f, "its own memory"),
            Self::Argument { position, offset } => write!(f, "argument {position} at {offset}"),
            Self::Result { position, offset } => write!(f, "result {position} at {offset}"),
        }
    }
}
