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

/// Where a 64-bit ELF file says where its section headers are, their size and number,
/// and where a header says what its section is: flags, place and size.
const SECTIONS: [usize; 3] = [0x28, 0x3a, 0x3c];
const SECTION: [usize; 3] = [0x08, 0x18, 0x20];
/// The flag of a section of instructions.
const EXECUTABLE: u64 = 4;

/// Whether a cubin holds such an instruction.
pub(super) fn has_misread_predicate(cubin: &[u8]) -> bool {
    code_sections(cubin).into_iter().any(|code| code.chunks_exact(INSTRUCTION).any(is_misread))
}

fn is_misread(instruction: &[u8]) -> bool {
    let (low, high) = (number(instruction, 0, 8), number(instruction, 8, 8));
    VIMNMX.contains(&(low & OPCODE)) && high & RELU != 0 && PREDICATES.iter().any(|place| high >> place & NONE != NONE)
}

/// The sections of instructions of an ELF file; what lies outside of the file is left out.
fn code_sections(file: &[u8]) -> Vec<&[u8]> {
    let [headers, size, count] = [(SECTIONS[0], 8), (SECTIONS[1], 2), (SECTIONS[2], 2)]
        .map(|(at, bytes)| usize::try_from(number(file, at, bytes)).unwrap_or(usize::MAX));
    let section = |index: usize| {
        let header = file.get(headers.checked_add(index.checked_mul(size)?)?..)?;
        let [flags, place, length] = SECTION.map(|at| number(header, at, 8));
        let place = usize::try_from(place).ok()?;
        let end = place.checked_add(usize::try_from(length).ok()?)?;
        if flags & EXECUTABLE == 0 { None } else { file.get(place..end) }
    };
    (0..count).filter_map(section).collect()
}

/// A little-endian number; zero outside of the bytes.
fn number(bytes: &[u8], at: usize, count: usize) -> u64 {
    let bytes = bytes.get(at..at.saturating_add(count)).unwrap_or_default();
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(instruction: [u64; 2], expected: bool) {
        let bytes: Vec<u8> = instruction.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(is_misread(&bytes), expected, "{instruction:x?}");
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

    /// A file with a section of data and one of instructions, each of one instruction.
    fn file(data: [u64; 2], code: [u64; 2]) -> Vec<u8> {
        let mut bytes = vec![0; 0x40];
        for section in [data, code] {
            bytes.extend(section.iter().flat_map(|word| word.to_le_bytes()));
        }
        let headers = bytes.len();
        for (flags, place) in [(0u64, 0x40u64), (EXECUTABLE, 0x50)] {
            let mut header = vec![0; 0x40];
            for (at, number) in SECTION.into_iter().zip([flags, place, INSTRUCTION as u64]) {
                header[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            bytes.extend(header);
        }
        for (at, number) in SECTIONS.into_iter().zip([headers as u64, 0x40, 2]) {
            bytes[at..at + 2].copy_from_slice(&number.to_le_bytes()[..2]);
        }
        bytes
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
