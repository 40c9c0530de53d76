//! Numbers: decimal, hexadecimal with `0x`, octal with a leading 0.

use super::{Parsed, fail};

/// Reason for rejecting a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumberError {
    /// Not a number.
    Syntax,
    /// Too many bits.
    TooLarge,
}

/// A number of up to 128 bits.
///
/// # Errors
/// Not a number, or more bits.
#[inline]
pub fn parse_u128(text: &str) -> Result<u128, NumberError> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if digits.is_empty() || !digits.bytes().all(|b| char::from(b).is_digit(radix)) {
        return Err(NumberError::Syntax);
    }
    u128::from_str_radix(digits, radix).map_err(|_| NumberError::TooLarge)
}

/// A number of up to 64 bits; a negative one in two's complement.
fn parse_u64_or_negative(text: &str) -> Result<u64, NumberError> {
    if let Some(positive) = text.strip_prefix('-') {
        let n = parse_u128(positive)?;
        let n = i64::try_from(n).map_err(|_| NumberError::TooLarge)?;
        return Ok(n.wrapping_neg() as u64);
    }
    u64::try_from(parse_u128(text)?).map_err(|_| NumberError::TooLarge)
}

/// A number of up to 8 bits, called `what` in the error.
///
/// # Errors
/// For anything else.
#[inline]
pub fn u8_named(text: &str, what: &str) -> Parsed<u8> {
    named(text, what)
}

/// A number of up to 16 bits, called `what` in the error.
///
/// # Errors
/// For anything else.
#[inline]
pub fn u16_named(text: &str, what: &str) -> Parsed<u16> {
    named(text, what)
}

fn named<T: TryFrom<u128>>(text: &str, what: &str) -> Parsed<T> {
    match parse_u128(text).map(T::try_from) {
        Ok(Ok(n)) => Ok(n),
        _ => fail(text, format!("invalid {what} \"{text}\"")),
    }
}

/// An argument of up to 32 bits.
///
/// # Errors
/// For anything else.
#[inline]
pub fn u32_argument(text: &str) -> Parsed<u32> {
    let n = u64_argument(text)?;
    match u32::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => fail(text, format!("{text}: value does not fit into 32 bits")),
    }
}

/// An argument of up to 64 bits.
///
/// # Errors
/// For anything else.
#[inline]
pub fn u64_argument(text: &str) -> Parsed<u64> {
    if text.is_empty() {
        return fail(text, "missing required numeric argument");
    }
    match parse_u64_or_negative(text) {
        Ok(n) => Ok(n),
        Err(NumberError::Syntax) => fail(text, format!("invalid numeric format {text}")),
        Err(NumberError::TooLarge) => fail(text, format!("{text}: value does not fit into 64 bits")),
    }
}

/// Integer of a field of `wire_bytes`; negative ones are allowed for 8 bytes.
pub(crate) fn field_integer(text: &str, wire_bytes: u8) -> Result<u128, NumberError> {
    if wire_bytes == 8 {
        return parse_u64_or_negative(text).map(u128::from);
    }
    if text.strip_prefix('-').is_some_and(|n| parse_u128(n).is_ok()) {
        return Err(NumberError::TooLarge);
    }
    let n = parse_u128(text)?;
    let fits = wire_bytes >= 16 || n >> (u32::from(wire_bytes) * 8) == 0;
    if fits { Ok(n) } else { Err(NumberError::TooLarge) }
}

/// C's `%#x`: zero has no prefix.
pub fn hex(n: u128) -> String {
    if n == 0 { "0".into() } else { format!("{n:#x}") }
}
