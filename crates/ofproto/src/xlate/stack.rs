//! The stack of a translation (`push`, `pop`).

/// Values, and their bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueStack {
    values: Vec<Vec<u8>>,
    bytes: usize,
}

/// Bytes that a value takes: as in OVS, one more for its length.
fn bytes_of(value: &[u8]) -> usize {
    value.len() + 1
}

impl ValueStack {
    pub(super) fn push(&mut self, value: Vec<u8>) {
        self.bytes += bytes_of(&value);
        self.values.push(value);
    }

    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let value = self.values.pop()?;
        self.bytes -= bytes_of(&value);
        Some(value)
    }

    /// Bytes of all values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The values, oldest first.
    pub(super) fn values(&self) -> &[Vec<u8>] {
        &self.values
    }
}

impl From<&[Vec<u8>]> for ValueStack {
    fn from(values: &[Vec<u8>]) -> ValueStack {
        ValueStack { values: values.to_vec(), bytes: values.iter().map(|v| bytes_of(v)).sum() }
    }
}
