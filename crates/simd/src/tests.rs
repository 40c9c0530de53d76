//! Every level answers as the plain one.

use super::*;
use proptest::prelude::*;

struct Fold<'a>(&'a [u64; 64], u64);

impl Kernel for Fold<'_> {
    type Output = (u64, u32);

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> (u64, u32) {
        let mixed = self.0.iter().fold(self.1, |h, w| {
            let product = u128::from(h ^ w) * 0x9e37_79b9_7f4a_7c15;
            product as u64 ^ (product >> 64) as u64
        });
        (mixed, self.0.iter().map(|w| (w & self.1).count_ones() + w.trailing_zeros()).sum())
    }
}

fn words(seed: u64) -> [u64; 8] {
    std::array::from_fn(|i| seed.rotate_left(i as u32))
}

struct Permute<'a>(&'a [u8; 64], &'a Permutation, u64);

impl Kernel for Permute<'_> {
    type Output = [u64; 8];

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> [u64; 8] {
        let mut out = [0; 8];
        lanes.permute(self.0, self.1, &words(self.2), &mut out);
        out
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
fn prefetch_takes_any_value_and_changes_none() {
    prefetch(&());
    let bytes: [u8; 1000] = std::array::from_fn(|i| i as u8);
    bytes.iter().for_each(prefetch);
    prefetch(&bytes);
    assert!(bytes.iter().enumerate().all(|(i, b)| *b == i as u8));
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
    fn permutations_are_the_plain_ones(low in prop::array::uniform32(any::<u8>()), places in prop::array::uniform32(any::<u8>()), keep: u64, set: u64) {
        let (mut bytes, mut all) = ([7; 64], [0; 64]);
        bytes[16..48].copy_from_slice(&low);
        all[..32].copy_from_slice(&places);
        all[32..].copy_from_slice(&places.map(|p| p.wrapping_mul(31)));
        let whole = run(Level::PLAIN, Permute(&bytes, &Permutation::new(all, [u64::MAX; 8]), 0));
        for (i, place) in all.iter().enumerate() {
            prop_assert_eq!(whole[i / 8].to_le_bytes()[i % 8], bytes[usize::from(*place & 63)]);
        }
        let permutation = Permutation::new(all, words(keep));
        let plain = run(Level::PLAIN, Permute(&bytes, &permutation, set));
        prop_assert_eq!(plain[1], whole[1] & keep.rotate_left(1) | set.rotate_left(1));
        for level in Level::available() {
            prop_assert_eq!(run(level, Permute(&bytes, &permutation, set)), plain);
        }
    }

    #[test]
    fn compare_is_the_plain_compare(values in prop::array::uniform12(0..4u16), high: u16, wanted in 0..4u16) {
        prop_assert_eq!(equal_u16(&values, wanted), equal_u16_plain(&values, wanted));
        let values = values.map(|v| v ^ high);
        prop_assert_eq!(equal_u16(&values, wanted ^ high), equal_u16_plain(&values, wanted ^ high));
    }

    #[test]
    fn wide_compare_is_the_plain_compare(values in prop::collection::vec(0..4u32, 32), high: u32, wanted in 0..4u32) {
        let values: [u32; 32] = std::array::from_fn(|i| values[i] ^ high);
        prop_assert_eq!(equal_u32(&values, wanted ^ high), equal_u32_plain(&values, wanted ^ high));
    }
}
