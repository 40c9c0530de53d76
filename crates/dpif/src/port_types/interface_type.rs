//! [`InterfaceType`]: a row of the registry. Parses the options of an interface, and reports those that it ignores.

use super::port_type::PortType;
use super::reader::OptionReader;
use super::{DeviceOrigin, DummyPort, INTERFACE_TYPES, InternalPort, PortOptions};
use std::collections::BTreeMap;
use std::fmt;

/// A port type before its options are parsed. It serves all of its names.
#[derive(Clone, Copy)]
pub struct InterfaceType {
    names: &'static [&'static str],
    keys: &'static [&'static str],
    device: DeviceOrigin,
    needs_enable_dummy: bool,
    parse: fn(&mut OptionReader<'_>) -> Result<PortOptions, String>,
}

/// Options of an interface, and notices about ignored ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedOptions {
    /// Type and options.
    pub options: PortOptions,
    /// In order of their keys.
    pub notices: Vec<OptionNotice>,
}

/// An option that the type ignores, with a warning as in OVS. Options of other types are for the table of settings.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OptionNotice {
    /// Its key.
    pub key: String,
    /// The reason.
    pub message: String,
}

impl InterfaceType {
    /// The row of a type.
    pub(super) const fn of<T>() -> InterfaceType
    where
        T: PortType,
        PortOptions: From<T>,
    {
        InterfaceType {
            names: T::NAMES,
            keys: T::KEYS,
            device: T::DEVICE,
            needs_enable_dummy: T::NEEDS_ENABLE_DUMMY,
            parse: |options| T::parse(options).map(PortOptions::from),
        }
    }

    /// All types.
    pub fn all() -> &'static [InterfaceType] {
        INTERFACE_TYPES
    }

    /// The type of dummies, which `--enable-dummy` may use in place of others.
    pub const DUMMY: InterfaceType = InterfaceType::of::<DummyPort>();

    /// Its names in `Interface.type`.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Keys of `Interface.options` that it reads.
    pub fn keys(&self) -> &'static [&'static str] {
        self.keys
    }

    /// Whether it exists only with `--enable-dummy`.
    pub fn needs_enable_dummy(&self) -> bool {
        self.needs_enable_dummy
    }

    /// Whether no network interface has the name of its ports.
    pub fn has_long_names(&self) -> bool {
        self.device == DeviceOrigin::None
    }

    /// The type used in a dummy datapath, where internal ports are dummies.
    pub fn in_dummy_datapath(self) -> InterfaceType {
        if self.names == InternalPort::NAMES { InterfaceType::DUMMY } else { self }
    }

    /// Parses the options of an interface; `type_name` is the type in its row, which a dummy may replace.
    ///
    /// # Errors
    /// The error for its row.
    pub fn parse(
        &self,
        interface: &str,
        type_name: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<ParsedOptions, String> {
        let mut reader = OptionReader::new(interface, type_name, options)?;
        let options = (self.parse)(&mut reader)?;
        let mut notices = reader.notices;
        notices.sort();
        Ok(ParsedOptions { options, notices })
    }
}

impl PartialEq for InterfaceType {
    fn eq(&self, other: &InterfaceType) -> bool {
        self.names == other.names
    }
}

impl Eq for InterfaceType {}

impl fmt::Debug for InterfaceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InterfaceType({})", self.names.join("|"))
    }
}
