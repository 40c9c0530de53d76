//! Every level answers as the plain one.

use super::*;
use proptest::prelude::*;

struct Fold<'a>(&'a [u64; 64], u64);

impl Kernel for Fold<'_> {
    type Output = (u64, u32);

    #[inline(always)]
    fn run(self) -> (u64, u32) {
        let mixed = self.0.iter().fold(self.1, |h, w| {
            let product = u128::from(h ^ w) * 0x9e37_79b9_7f4a_7c15;
            product as u64 ^ (product >> 64) as u64
        });
        (mixed, self.0.iter().map(|w| (w & self.1).count_ones() + w.trailing_zeros()).sum())
    }
}

#[test]
fn levels_start_plain_and_grow() {
    let levels = Level::available();
    assert_eq!(levels[0], Level::PLAIN);
    assert!(levels.is_sorted());
    assert_eq!(levels.last(), Some(&Level::best()));
}

#[test]
fn prefetch_takes_any_value() {
    prefetch(&());
    prefetch(&[0u8; 1000]);
}

proptest! {
    #[test]
    fn levels_answer_alike(words in prop::array::uniform32(any::<u64>()), seed: u64) {
        let mut all = [0; 64];
        all[..32].copy_from_slice(&words);
        let plain = run(Level::PLAIN, Fold(&all, seed));
        for level in Level::available() {
            prop_assert_eq!(run(level, Fold(&all, seed)), plain);
        }
    }

    #[test]
    fn compare_is_the_plain_compare(values in prop::array::uniform12(0..4u16), high: u16, wanted in 0..4u16) {
        prop_assert_eq!(equal_u16(&values, wanted), equal_u16_plain(&values, wanted));
        let values = values.map(|v| v ^ high);
        prop_assert_eq!(equal_u16(&values, wanted ^ high), equal_u16_plain(&values, wanted ^ high));
    }
}
