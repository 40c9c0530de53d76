//! Numbers between JSON text and atoms, in the form that OVSDB peers expect: a real prints with the fewest of
//! 15 or 17 significant digits that parse to an equal value, an integral real as an integer.

use serde_json::{Number, Value};

const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

/// The text of a finite real. Reads back to the same value.
pub fn format_real(x: f64) -> String {
    if x.fract() == 0.0 && (-TWO_POW_63..TWO_POW_63).contains(&x) {
        return format!("{}", x as i64);
    }
    let short = significant(x, 15);
    if short.parse() == Ok(x) { short } else { significant(x, 17) }
}

/// C's `%.<digits>g`.
fn significant(x: f64, digits: usize) -> String {
    let scientific = format!("{:.*e}", digits - 1, x);
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", strip_zeros(mantissa), exponent.unsigned_abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    strip_zeros(&format!("{x:.decimals$}")).to_string()
}

fn strip_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The JSON number of a real; null if not finite (such values are never stored).
pub(super) fn real_to_json(x: f64) -> Value {
    format_real(x).parse::<Number>().map_or(Value::Null, Value::Number)
}

/// The number as an integer, if it is integral and in range, as are `1`, `1.0` and `1e3`.
pub fn number_to_i64(number: &Number) -> Option<i64> {
    if let Some(n) = number.as_i64() {
        return Some(n);
    }
    let x = number.as_f64()?;
    (x.fract() == 0.0 && (-TWO_POW_63..TWO_POW_63).contains(&x)).then_some(x as i64)
}
