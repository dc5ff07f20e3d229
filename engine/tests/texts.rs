//! Random fusions read back from their texts: from ours as they were, from
//! nvFuser's form as the same structure. What is printed prints the same again.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::property::property;
use engine::fusion::hash;
use engine::num::DType;
use engine::text;
use testing::fusions::{Limits, generate};

#[test]
fn printing_and_reading_give_the_fusion_back() {
    let limits = Limits { dtypes: DType::FUSION.to_vec(), ..Limits::default() };
    property(|u| {
        let fusion = generate(u.bytes(u.len())?, &limits).fusion;
        let printed = text::print(&fusion);
        let read = text::parse_one(&printed).unwrap_or_else(|errors| panic!("{errors:?}\n{printed}"));
        assert_eq!(read, fusion, "{printed}");
        assert_eq!(hash::content(&read), hash::content(&fusion));
        assert_eq!(text::print(&read), printed);
        Ok(())
    })
    .bytes(64..=400)
    .cases(6000);
}

#[test]
fn definitions_of_nvfuser_read_back() {
    property(|u| {
        let bytes: Vec<u8> = u.arbitrary()?;
        let fusion = generate(&bytes, &Limits::default()).fusion;
        let printed = pydef::print(&fusion);
        let mut read = pydef::read(&printed).unwrap_or_else(|errors| panic!("{errors:?}\n{printed}"));
        assert_eq!(read.len(), 1, "{printed}");
        let again = read.remove(0).fusion;
        if hash::structure(&fusion) != hash::structure(&again) {
            panic!("another structure:\n{}\n{printed}\n{}", text::print(&fusion), text::print(&again));
        }
        assert_eq!(pydef::print(&again), printed);
        Ok(())
    });
}
