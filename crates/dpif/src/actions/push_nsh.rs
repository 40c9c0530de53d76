//! `push_nsh`: adds a network service header (RFC 8300).

use super::prelude::*;
use crate::text::sets;
use flow::Nsh;
use flow::nlkey::{parse_nsh, write_nsh};
use packet::headers as h;

/// Pushes a network service header before the packet's first one. The packet has no Ethernet header afterwards.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PushNsh {
    /// Its fields.
    pub header: Nsh,
    /// Context headers of metadata type 2, a multiple of four bytes up to [`h::NSH_MD2_MAX_BYTES`].
    pub contexts: Box<[u8]>,
}

impl PushNsh {
    /// A header, if `contexts` have a permitted length, and the metadata type is one of the two known ones.
    pub fn new(header: Nsh, contexts: &[u8]) -> Option<PushNsh> {
        let fits = match header.mdtype {
            h::NSH_MD_TYPE1 => contexts.is_empty(),
            h::NSH_MD_TYPE2 => contexts.len().is_multiple_of(4) && contexts.len() <= h::NSH_MD2_MAX_BYTES,
            _ => false,
        };
        fits.then(|| PushNsh { header, contexts: contexts.into() })
    }

    /// The bytes of the whole header.
    pub fn to_bytes(&self) -> Vec<u8> {
        let first = self.header.contexts();
        let contexts = if self.header.mdtype == h::NSH_MD_TYPE1 { &first[..] } else { &self.contexts };
        [&self.header.header(h::NSH_BASE_BYTES + contexts.len()), contexts].concat()
    }
}

/// `OVS_ACTION_ATTR_PUSH_NSH`.
const ATTR: u16 = 17;
/// `OVS_NSH_KEY_ATTR_MD2`.
const MD2: u16 = 3;

impl Action for PushNsh {
    const WORDS: &'static [Word] = &[call("push_nsh")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        Some(Rewrite::PushNsh(self))
    }

    fn format(&self, _names: &dyn PortNames) -> String {
        let fields = sets::nsh_text(&self.header, &Nsh { context: [0; 4], ..Nsh::ALL });
        match self.header.mdtype {
            h::NSH_MD_TYPE1 => format!("push_nsh({})", sets::nsh_text(&self.header, &Nsh::ALL)),
            _ if self.contexts.is_empty() => format!("push_nsh({fields},md2=0)"),
            _ => {
                let bytes: String = self.contexts.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("push_nsh({fields},md2=0x{bytes})")
            }
        }
    }

    /// Absent fields have the values of a new header, as in OVS.
    fn parse(item: &Item<'_>, _parser: &Parser<'_>) -> Result<PushNsh, TextError> {
        let mut contexts = Vec::new();
        let given = sets::nsh(item, &mut |field| match field.name {
            "md2" => {
                contexts = sets::hex_bytes(field.value()?)?;
                Ok(true)
            }
            _ => Ok(false),
        })?;
        let new =
            Nsh { ttl: 63, mdtype: h::NSH_MD_TYPE1, np: flow::nsh_np::ETHERNET, path: 255, ..Nsh::default() };
        let header = new.with(&given.value, &given.mask);
        let bad =
            || TextError("push_nsh: mdtype=1, or mdtype=2 with md2=0xBYTES (words of 4) expected".into());
        PushNsh::new(header, &contexts).ok_or_else(bad)
    }

    fn write(&self, out: &mut AttrWriter, _writer: &Writer<'_>) -> Result<(), ActionError> {
        out.nested(ATTR, |out| {
            write_nsh(out, &self.header);
            if self.header.mdtype != h::NSH_MD_TYPE1 {
                out.put(MD2, &self.contexts);
            }
        });
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<PushNsh, ActionError> {
        let attrs = attr.nested()?;
        let contexts = attrs.get(MD2).map_or(&[][..], |a| a.content);
        PushNsh::new(parse_nsh(attrs)?, contexts).ok_or(ActionError::Foreign)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.rewrite(packets, Rewrite::PushNsh(self))
    }
}
