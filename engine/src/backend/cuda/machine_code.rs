//! What the assembler is known to get wrong, found in what it made.
//!
//! In: machine code for compute capability 9 or newer. Out: whether it holds an instruction
//! whose result is not to be trusted.
//!
//! The assembler of CUDA 13.0 joins `m = max(min(a, b), 0)` of 32-bit integers and a
//! test of `m == b` into one instruction, `VIMNMX.RELU` with a predicate as a second
//! result, and reads that predicate the wrong way round. The pattern need not stand
//! in the text: a clamp before a minimum of bytes becomes it. Without optimization
//! the two stay apart.

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, SectionKind};

/// Bytes of an instruction.
const INSTRUCTION: usize = 16;
/// The opcode with its second operand in a register, in the instruction, in constant
/// memory, in a uniform register.
const VIMNMX: [u64; 4] = [0x248, 0x848, 0xa48, 0xc48];
const OPCODE: u64 = 0xfff;
/// In the second word: the maximum with zero, and the places of the two predicates.
const RELU: u64 = 1 << 12;
const PREDICATES: [u32; 2] = [17, 20];
/// The predicate that stands for none.
const NONE: u64 = 7;

/// Whether a cubin holds such an instruction.
pub(super) fn has_misread_predicate(cubin: &[u8]) -> bool {
    code_sections(cubin).into_iter().any(|code| code.as_chunks().0.iter().any(is_misread))
}

fn is_misread(instruction: &[u8; INSTRUCTION]) -> bool {
    let (low, high) = (u128::from_le_bytes(*instruction) as u64, (u128::from_le_bytes(*instruction) >> 64) as u64);
    VIMNMX.contains(&(low & OPCODE)) && high & RELU != 0 && PREDICATES.iter().any(|place| high >> place & NONE != NONE)
}

/// The sections of instructions of an ELF file; none of what is no such file.
fn code_sections(file: &[u8]) -> Vec<&[u8]> {
    let Ok(file) = ElfFile64::<Endianness>::parse(file) else { return Vec::new() };
    let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
    code.filter_map(|section| section.data().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of a section of instructions: in memory, and executed.
    const EXECUTABLE: u64 = 2 | 4;

    fn bytes(instruction: [u64; 2]) -> [u8; INSTRUCTION] {
        (u128::from(instruction[0]) | u128::from(instruction[1]) << 64).to_le_bytes()
    }

    #[track_caller]
    fn check(instruction: [u64; 2], expected: bool) {
        assert_eq!(is_misread(&bytes(instruction)), expected, "{instruction:x?}");
    }

    #[test]
    fn only_a_maximum_with_zero_and_a_predicate_is_found() {
        // VIMNMX.RELU R0, P0, P0, R2, 0xff, PT
        check([0x0000_00ff_0200_7848, 0x004f_c800_0380_1100], true);
        // VIMNMX.RELU R0, P0, P0, R0, R7, PT
        check([0x0000_0007_0000_7248, 0x004f_c800_0380_1100], true);
        // VIMNMX.RELU R0, R2, 0xff, PT
        check([0x0000_00ff_0200_7848, 0x004f_c800_03fe_1100], false);
        // VIMNMX R7, R0, R7, PT
        check([0x0000_0007_0007_7248, 0x004f_ca00_03fe_0100], false);
    }

    /// A file with an empty section, one of data and one of instructions, each of these
    /// of one instruction.
    fn file(data: [u64; 2], code: [u64; 2]) -> Vec<u8> {
        let mut file = vec![0; 0x40];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file.extend([bytes(data), bytes(code)].concat());
        let headers = file.len() as u64;
        for (kind, flags, place) in [(0u32, 0u64, 0u64), (1, 0, 0x40), (1, EXECUTABLE, 0x50)] {
            let mut header = vec![0; 0x40];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            for (at, number) in [(0x08, flags), (0x18, place), (0x20, INSTRUCTION as u64)] {
                header[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            file.extend(header);
        }
        file[0x28..0x30].copy_from_slice(&headers.to_le_bytes());
        for (at, number) in [(0x3a, 0x40u16), (0x3c, 3), (0x3e, 1)] {
            file[at..at + 2].copy_from_slice(&number.to_le_bytes());
        }
        file
    }

    #[test]
    fn only_instructions_are_looked_at() {
        let misread = [0x0000_00ff_0200_7848, 0x004f_c800_0380_1100];
        assert!(has_misread_predicate(&file([0; 2], misread)));
        assert!(!has_misread_predicate(&file(misread, [0; 2])));
    }

    #[test]
    fn what_is_no_file_of_code_has_no_sections() {
        for length in [0, 1, 0x3d, 0x40, 1000] {
            assert!(code_sections(&vec![0x48; length]).is_empty(), "{length} bytes");
        }
    }
}
