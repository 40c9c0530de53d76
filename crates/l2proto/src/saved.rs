//! State of sessions on its way to another process: an object of JSON for each session, in one line.
//!
//! [`fields!`] lists the fields of a type under their names. A reader skips names that it does not know, and leaves absent
//! ones as they begin. Times are milliseconds from the moment of writing; a time of 0 is `null`, and one without an end
//! is `"never"`. Recorded texts in the tests of each protocol hold the names.

use crate::protocol::{Environment, SessionId};
use flow::MacAddr;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Version of the format. A reader takes no other one: additions are fields.
const VERSION: u64 = 1;
/// Largest text of a session, bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// States of former sessions that wait for their interfaces, at most.
pub const FORMER_MAX: usize = 1 << 16;
/// Largest number of elements of a list.
const ELEMENTS_MAX: usize = 4096;
/// Farthest times before and after the moment of writing, milliseconds: a year and a day.
const AGO_MS_MAX: i64 = 366 * 24 * 3600 * 1000;
const LEFT_MS_MAX: i64 = 24 * 3600 * 1000;
const NEVER: &str = "never";

/// Names and values of a session.
pub(crate) type Object = Map<String, Value>;

/// A value of a field.
pub(crate) trait Saved: Sized {
    /// Its value at that time.
    fn value(&self, now_ms: u64) -> Value;
    /// Reads a value that was written at that time.
    ///
    /// # Errors
    /// The expectation that it does not meet.
    fn of(value: &Value, then_ms: u64) -> Result<Self, String>;
}

/// A type with listed fields.
pub(crate) trait Fields {
    /// Adds its fields.
    fn write(&self, object: &mut Object, now_ms: u64);
    /// Takes the fields that are there.
    ///
    /// # Errors
    /// A value of another type.
    fn read(&mut self, object: &Object, then_ms: u64) -> Result<(), String>;
}

/// A time: milliseconds of the clock.
pub(crate) trait Time: Sized {
    fn away(&self, now_ms: u64) -> Value;
    fn at(value: &Value, then_ms: u64) -> Result<Self, String>;
}

impl Time for u64 {
    fn away(&self, now_ms: u64) -> Value {
        match *self {
            0 => Value::Null,
            u64::MAX => Value::from(NEVER),
            at_ms => Value::from((at_ms as i64).wrapping_sub(now_ms as i64)),
        }
    }

    fn at(value: &Value, then_ms: u64) -> Result<u64, String> {
        match value {
            Value::Null => Ok(0),
            Value::String(word) if word == NEVER => Ok(u64::MAX),
            other => {
                let away_ms = other.as_i64().ok_or("no time")?.clamp(-AGO_MS_MAX, LEFT_MS_MAX);
                Ok(then_ms.saturating_add_signed(away_ms).max(1))
            }
        }
    }
}

impl Time for Option<u64> {
    fn away(&self, now_ms: u64) -> Value {
        self.map_or(Value::Null, |at_ms| at_ms.max(1).away(now_ms))
    }

    fn at(value: &Value, then_ms: u64) -> Result<Option<u64>, String> {
        match value {
            Value::Null => Ok(None),
            other => u64::at(other, then_ms).map(|at_ms| Some(at_ms).filter(|at_ms| *at_ms != u64::MAX)),
        }
    }
}

impl Saved for bool {
    fn value(&self, _: u64) -> Value {
        Value::from(*self)
    }

    fn of(value: &Value, _: u64) -> Result<bool, String> {
        value.as_bool().ok_or_else(|| "neither true nor false".to_string())
    }
}

/// Largest counter that is taken: it has room to count on.
const COUNT_MAX: u64 = u64::MAX / 2;

/// Bounds counters.
pub(crate) fn bound_counts<const N: usize>(counts: [&mut u64; N]) {
    counts.into_iter().for_each(|count| *count = (*count).min(COUNT_MAX));
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Saved for $number {
            fn value(&self, _: u64) -> Value {
                Value::from(*self)
            }

            fn of(value: &Value, _: u64) -> Result<$number, String> {
                value.as_u64().and_then(|number| number.try_into().ok()).ok_or_else(|| "no number of its size".to_string())
            }
        }
    )+};
}
numbers!(u8, u16, u32, u64);

impl Saved for String {
    fn value(&self, _: u64) -> Value {
        Value::from(self.as_str())
    }

    fn of(value: &Value, _: u64) -> Result<String, String> {
        value.as_str().map(str::to_string).ok_or_else(|| "no text".to_string())
    }
}

impl Saved for MacAddr {
    fn value(&self, _: u64) -> Value {
        Value::from(self.to_string())
    }

    fn of(value: &Value, _: u64) -> Result<MacAddr, String> {
        value.as_str().and_then(MacAddr::parse).ok_or_else(|| "no Ethernet address".to_string())
    }
}

/// Bytes are pairs of hexadecimal digits.
impl Saved for Box<[u8]> {
    fn value(&self, _: u64) -> Value {
        Value::from(self.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    fn of(value: &Value, _: u64) -> Result<Box<[u8]>, String> {
        let text = value.as_str().ok_or("no bytes")?;
        let digit = |byte: u8| (byte as char).to_digit(16);
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
            _ => None,
        };
        text.as_bytes().chunks(2).map(pair).collect::<Option<_>>().ok_or_else(|| "no bytes".to_string())
    }
}

impl<const N: usize> Saved for [u8; N] {
    fn value(&self, now_ms: u64) -> Value {
        Box::<[u8]>::from(*self).value(now_ms)
    }

    fn of(value: &Value, then_ms: u64) -> Result<[u8; N], String> {
        let bytes = Box::<[u8]>::of(value, then_ms)?;
        (*bytes).try_into().map_err(|_| format!("no {N} bytes"))
    }
}

impl<T: Saved> Saved for Option<T> {
    fn value(&self, now_ms: u64) -> Value {
        self.as_ref().map_or(Value::Null, |value| value.value(now_ms))
    }

    fn of(value: &Value, then_ms: u64) -> Result<Option<T>, String> {
        if value.is_null() { Ok(None) } else { T::of(value, then_ms).map(Some) }
    }
}

impl<T: Saved> Saved for Vec<T> {
    fn value(&self, now_ms: u64) -> Value {
        self.iter().map(|element| element.value(now_ms)).collect()
    }

    fn of(value: &Value, then_ms: u64) -> Result<Vec<T>, String> {
        let list = value.as_array().ok_or("no list")?;
        list.iter().take(ELEMENTS_MAX).map(|element| T::of(element, then_ms)).collect()
    }
}

impl<A: Saved, B: Saved> Saved for (A, B) {
    fn value(&self, now_ms: u64) -> Value {
        Value::from(vec![self.0.value(now_ms), self.1.value(now_ms)])
    }

    fn of(value: &Value, then_ms: u64) -> Result<(A, B), String> {
        match value.as_array().map(Vec::as_slice) {
            Some([first, second]) => Ok((A::of(first, then_ms)?, B::of(second, then_ms)?)),
            _ => Err("no pair".to_string()),
        }
    }
}

/// A list of pairs.
impl<T: Saved> Saved for BTreeMap<u64, T> {
    fn value(&self, now_ms: u64) -> Value {
        self.iter().map(|(key, value)| Value::from(vec![key.value(now_ms), value.value(now_ms)])).collect()
    }

    fn of(value: &Value, then_ms: u64) -> Result<BTreeMap<u64, T>, String> {
        Vec::<(u64, T)>::of(value, then_ms).map(|pairs| pairs.into_iter().collect())
    }
}

/// Lists fields of a type: values, and times. With `start`, the type is a value itself.
macro_rules! fields {
    ($type:ty $(, start: $start:expr)?; $($field:ident),*; times: $($time:ident),*) => {
        impl $crate::saved::Fields for $type {
            fn write(&self, object: &mut $crate::saved::Object, now_ms: u64) {
                $(object.insert(stringify!($field).to_string(), $crate::saved::Saved::value(&self.$field, now_ms));)*
                $(object.insert(stringify!($time).to_string(), $crate::saved::Time::away(&self.$time, now_ms));)*
            }

            fn read(&mut self, object: &$crate::saved::Object, then_ms: u64) -> Result<(), String> {
                let of = |name: &'static str| move |why| format!("{name}: {why}");
                $(if let Some(value) = object.get(stringify!($field)) {
                    self.$field = $crate::saved::Saved::of(value, then_ms).map_err(of(stringify!($field)))?;
                })*
                $(if let Some(value) = object.get(stringify!($time)) {
                    self.$time = $crate::saved::Time::at(value, then_ms).map_err(of(stringify!($time)))?;
                })*
                Ok(())
            }
        }

        $(impl $crate::saved::Saved for $type {
            fn value(&self, now_ms: u64) -> serde_json::Value {
                let mut object = $crate::saved::Object::new();
                $crate::saved::Fields::write(self, &mut object, now_ms);
                object.into()
            }

            fn of(value: &serde_json::Value, then_ms: u64) -> Result<Self, String> {
                let mut new: $type = $start;
                let object = value.as_object().ok_or("no object")?;
                $crate::saved::Fields::read(&mut new, object, then_ms)?;
                Ok(new)
            }
        })?
    };
}
pub(crate) use fields;

/// Names values of an enumeration without contents.
macro_rules! words {
    ($type:ty: $($value:path => $word:literal),+ $(,)?) => {
        impl $crate::saved::Saved for $type {
            fn value(&self, _: u64) -> serde_json::Value {
                serde_json::Value::from(match self {
                    $($value => $word,)+
                })
            }

            fn of(value: &serde_json::Value, _: u64) -> Result<Self, String> {
                match value.as_str() {
                    $(Some($word) => Ok($value),)+
                    _ => Err("no such word".to_string()),
                }
            }
        }
    };
}
pub(crate) use words;

/// Writes a field of an object.
pub(crate) fn put(object: &mut Object, name: &str, value: &impl Saved, now_ms: u64) {
    object.insert(name.to_string(), value.value(now_ms));
}

/// Reads a field of an object, or its start value.
pub(crate) fn get<T: Saved>(object: &Object, name: &str, then_ms: u64, start: T) -> Result<T, String> {
    match object.get(name) {
        Some(value) => T::of(value, then_ms).map_err(|why| format!("{name}: {why}")),
        None => Ok(start),
    }
}

/// Fields of an object in it.
pub(crate) fn put_fields(object: &mut Object, name: &str, fields: &impl Fields, now_ms: u64) {
    let mut inner = Object::new();
    fields.write(&mut inner, now_ms);
    object.insert(name.to_string(), inner.into());
}

/// Reads fields of an object in it, if it is there.
pub(crate) fn get_fields(
    object: &Object,
    name: &str,
    fields: &mut impl Fields,
    then_ms: u64,
) -> Result<(), String> {
    match object.get(name) {
        Some(Value::Object(inner)) => fields.read(inner, then_ms).map_err(|why| format!("{name}: {why}")),
        Some(_) => Err(format!("{name}: no object")),
        None => Ok(()),
    }
}

/// The line of an object.
pub(crate) fn line(mut object: Object) -> String {
    object.insert("version".to_string(), Value::from(VERSION));
    Value::Object(object).to_string()
}

/// A state of a former session, and the time of its writing.
#[derive(Clone, Debug)]
pub(crate) struct Former {
    pub(crate) object: Object,
    pub(crate) then_ms: u64,
}

impl Former {
    /// Reads a line.
    pub(crate) fn parse(text: &str, then_ms: u64) -> Result<Former, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("a state of {} bytes", text.len()));
        }
        let object = match serde_json::from_str(text) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return Err("a state that is no object".to_string()),
            Err(e) => return Err(format!("a state that is no JSON: {e}")),
        };
        match object.get("version").and_then(Value::as_u64) {
            Some(VERSION) => Ok(Former { object, then_ms }),
            Some(other) => Err(format!("a state of version {other}, not {VERSION}")),
            None => Err("a state without a version".to_string()),
        }
    }
}

/// The surroundings of a session that is only tried.
pub(crate) struct Nothing;

impl Environment for Nothing {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        0
    }

    fn random(&mut self, _: u32) -> u32 {
        0
    }
}

/// States of former sessions that wait for their interfaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Formers(BTreeMap<String, Former>);

impl Formers {
    /// Keeps the state of an interface.
    pub(crate) fn put(&mut self, interface: &str, former: Former) -> Result<(), String> {
        if self.0.len() >= FORMER_MAX {
            return Err(format!("more than {FORMER_MAX} states wait"));
        }
        self.0.insert(interface.to_string(), former);
        Ok(())
    }

    /// Takes the state of an interface.
    pub(crate) fn take(&mut self, interface: &str) -> Option<Former> {
        self.0.remove(interface)
    }

    /// Takes the interfaces of all.
    pub(crate) fn drain(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0).into_keys().collect()
    }
}

#[cfg(test)]
mod tests;
