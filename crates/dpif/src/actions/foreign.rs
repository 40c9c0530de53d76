//! An unknown action, by its number and bytes.

use super::prelude::*;

/// An action of another program in the kernel that this switch cannot express. Translations never use it; userspace
/// drops the packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Foreign {
    /// `OVS_ACTION_ATTR_*`.
    pub kind: u16,
    /// Its content.
    pub content: Box<[u8]>,
}

impl Action for Foreign {
    const WORDS: &'static [Word] = &[];
    const ATTRS: &'static [u16] = &[];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    kernel_only!("(unknown)");

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        let bytes: Vec<String> = self.content.iter().map(|byte| format!("{byte:02x}")).collect();
        let kind = self.kind;
        // In the form of stock tools for unknown actions.
        if bytes.is_empty() { format!("action{kind}") } else { format!("action{kind}({})", bytes.join(" ")) }
    }

    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<Foreign, TextError> {
        // Only the kernel has such actions; text cannot express them.
        Err(item.unknown("actions"))
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.put(self.kind, &self.content);
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<Foreign, ActionError> {
        Ok(Foreign { kind: attr.kind, content: attr.content.into() })
    }
}
