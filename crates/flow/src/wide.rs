//! [`Wide`]: a number of up to 1024 bits, the value of a tunnel metadata field.

use crate::text::number::NumberError;

/// Limbs of a [`Wide`].
const LIMBS: usize = 16;

/// A number of up to 1024 bits. Its limbs are 64 bits each, the least significant first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Wide([u64; LIMBS]);

impl Wide {
    /// Bits of a number.
    pub const BITS: u32 = 64 * LIMBS as u32;

    /// The number whose `len` low bits are set.
    pub fn ones(len: u32) -> Wide {
        Wide(std::array::from_fn(|i| match len.saturating_sub(64 * i as u32) {
            0 => 0,
            n if n >= 64 => u64::MAX,
            n => (1 << n) - 1,
        }))
    }

    /// A number of bytes, most significant first; of more than 128 bytes the last ones.
    pub fn from_be_bytes(bytes: &[u8]) -> Wide {
        let mut out = Wide::default();
        for (i, byte) in bytes.iter().rev().take(8 * LIMBS).enumerate() {
            out.0[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
        out
    }

    /// Its low `n` bytes, most significant first; at most 128.
    pub fn to_be_bytes(self, n: usize) -> Vec<u8> {
        let n = n.min(8 * LIMBS);
        (0..n).rev().map(|i| (self.0[i / 8] >> (8 * (i % 8))) as u8).collect()
    }

    /// The low 128 bits.
    pub fn low(self) -> u128 {
        u128::from(self.0[1]) << 64 | u128::from(self.0[0])
    }

    /// The 32 bits from bit `32 * i` on.
    pub fn word(self, i: usize) -> u32 {
        (self.0[i / 2] >> (32 * (i % 2))) as u32
    }

    /// Sets the 32 bits from bit `32 * i` on, which are zero.
    pub fn put_word(&mut self, i: usize, word: u32) {
        self.0[i / 2] |= u64::from(word) << (32 * (i % 2));
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.0.iter().all(|limb| *limb == 0)
    }

    /// Number of bits without leading zeros.
    pub fn bits(self) -> u32 {
        let top = self.0.iter().rposition(|limb| *limb != 0);
        top.map_or(0, |i| 64 * (i as u32 + 1) - self.0[i].leading_zeros())
    }

    /// Number of trailing zero bits; all bits for 0.
    pub fn trailing_zeros(self) -> u32 {
        let low = self.0.iter().position(|limb| *limb != 0);
        low.map_or(Wide::BITS, |i| 64 * i as u32 + self.0[i].trailing_zeros())
    }

    /// Number of trailing one bits.
    pub fn trailing_ones(self) -> u32 {
        (!self).trailing_zeros()
    }

    /// Parses a decimal, octal (leading 0) or hexadecimal (`0x`) number.
    ///
    /// # Errors
    /// Not a number, or more than 1024 bits.
    pub fn parse(text: &str) -> Result<Wide, NumberError> {
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => (hex, 16),
            None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
            None => (text, 10),
        };
        if digits.is_empty() {
            return Err(NumberError::Syntax);
        }
        let mut out = Wide::default();
        let mut fits = true;
        for digit in digits.chars() {
            let digit = digit.to_digit(radix).ok_or(NumberError::Syntax)?;
            fits &= out.push_digit(radix, digit);
        }
        if fits { Ok(out) } else { Err(NumberError::TooLarge) }
    }

    /// Multiplies by `radix` and adds `digit`; returns whether the result fits.
    fn push_digit(&mut self, radix: u32, digit: u32) -> bool {
        let mut carry = u128::from(digit);
        for limb in &mut self.0 {
            let n = u128::from(*limb) * u128::from(radix) + carry;
            (*limb, carry) = (n as u64, n >> 64);
        }
        carry == 0
    }

    /// C's `%#x`: zero has no prefix.
    pub fn hex(self) -> String {
        let Some(top) = self.0.iter().rposition(|limb| *limb != 0) else { return "0".into() };
        let mut out = format!("{:#x}", self.0[top]);
        for limb in self.0[..top].iter().rev() {
            out += &format!("{limb:016x}");
        }
        out
    }
}

impl From<u128> for Wide {
    fn from(n: u128) -> Wide {
        let mut out = Wide::default();
        (out.0[0], out.0[1]) = (n as u64, (n >> 64) as u64);
        out
    }
}

impl std::ops::Not for Wide {
    type Output = Wide;

    fn not(self) -> Wide {
        Wide(self.0.map(|limb| !limb))
    }
}

impl std::ops::BitAnd for Wide {
    type Output = Wide;

    fn bitand(self, other: Wide) -> Wide {
        Wide(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl std::ops::BitOr for Wide {
    type Output = Wide;

    fn bitor(self, other: Wide) -> Wide {
        Wide(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

impl std::ops::Shl<u32> for Wide {
    type Output = Wide;

    fn shl(self, n: u32) -> Wide {
        let (limbs, bits) = (n as usize / 64, n % 64);
        let limb = |i: Option<usize>| i.and_then(|i| self.0.get(i)).copied().unwrap_or(0);
        Wide(std::array::from_fn(|i| {
            let high = limb(i.checked_sub(limbs)) << bits;
            let low = limb(i.checked_sub(limbs + 1)).checked_shr(64 - bits).unwrap_or(0);
            high | low
        }))
    }
}

impl std::ops::Shr<u32> for Wide {
    type Output = Wide;

    fn shr(self, n: u32) -> Wide {
        let (limbs, bits) = (n as usize / 64, n % 64);
        let limb = |i: usize| self.0.get(i).copied().unwrap_or(0);
        Wide(std::array::from_fn(|i| {
            limb(i + limbs) >> bits | limb(i + limbs + 1).checked_shl(64 - bits).unwrap_or(0)
        }))
    }
}

impl std::fmt::Debug for Wide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Small numbers behave as `u128`.
        #[test]
        fn agrees_with_numbers_of_the_machine(a: u64, b: u128, n in 0..64u32) {
            let (a, w) = (u128::from(a), Wide::from(u128::from(a)));
            prop_assert_eq!((w << n).low(), a << n);
            prop_assert_eq!((w << (700 + n)) >> 700, w << n);
            prop_assert_eq!((w >> n).low(), a >> n);
            prop_assert_eq!((w & Wide::from(b)).low(), a & b);
            prop_assert_eq!((w | Wide::from(b)).low(), a | b);
            prop_assert_eq!(w.bits(), 128 - a.leading_zeros());
            prop_assert_eq!(Wide::from_be_bytes(&w.to_be_bytes(20)), w);
            prop_assert_eq!(Wide::parse(&a.to_string()), Ok(w));
            prop_assert_eq!(Wide::parse(&w.hex()), Ok(w));
            prop_assert_eq!(w.hex(), crate::text::number::hex(a));
        }

        #[test]
        fn long_numbers_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..=128)) {
            let n = Wide::from_be_bytes(&bytes);
            prop_assert_eq!(n.to_be_bytes(bytes.len()), bytes);
            prop_assert_eq!(Wide::parse(&n.hex()), Ok(n));
            let mut words = Wide::default();
            (0..32).for_each(|i| words.put_word(i, n.word(i)));
            prop_assert_eq!(words, n);
            prop_assert_eq!(n & Wide::ones(n.bits()), n);
        }
    }

    #[test]
    fn numbers_have_bounds() {
        let check =
            |text: &str, want: Result<Wide, NumberError>| assert_eq!(Wide::parse(text), want, "{text}");
        check("", Err(NumberError::Syntax));
        check("0x", Err(NumberError::Syntax));
        check("12g", Err(NumberError::Syntax));
        check("-1", Err(NumberError::Syntax));
        check("017", Ok(Wide::from(15)));
        check(&format!("0x{}", "f".repeat(256)), Ok(Wide::ones(1024)));
        check(&format!("0x1{}", "0".repeat(256)), Err(NumberError::TooLarge));
        assert_eq!((Wide::ones(70).trailing_ones(), Wide::ones(70).bits()), (70, 70));
        assert_eq!((Wide::ones(70) << 5).trailing_zeros(), 5);
        assert_eq!(Wide::default().trailing_zeros(), Wide::BITS);
    }
}
