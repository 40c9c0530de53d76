//! The macro of the registry: generates [`PortOptions`](super::PortOptions), exhaustive dispatch of every method, and
//! the rows.

macro_rules! port_types {
    ($($variant:ident($options:ty),)*) => {
        /// Type of a port, with the options of that type.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum PortOptions {
            $(#[doc = concat!("`", stringify!($variant), "`; see its type.")] $variant($options),)*
        }

        $(impl From<$options> for PortOptions {
            fn from(options: $options) -> PortOptions {
                PortOptions::$variant(options)
            }
        })*

        /// The registry.
        static INTERFACE_TYPES: &[InterfaceType] = &[$(InterfaceType::of::<$options>(),)*];

        impl PortOptions {
            /// Type name as in databases and `dpctl/show`.
            pub fn type_name(&self) -> &str {
                match self { $(PortOptions::$variant(options) => options.type_name(),)* }
            }

            /// Type name in a userspace datapath.
            pub fn userspace_type_name(&self) -> &str {
                match self { $(PortOptions::$variant(options) => options.userspace_type_name(),)* }
            }

            /// Origin of its device.
            pub fn device_origin(&self) -> DeviceOrigin {
                match self { $(PortOptions::$variant(_) => <$options as PortType>::DEVICE,)* }
            }

            /// Whether many such devices are opened and closed together, as that waits for the kernel.
            pub fn opens_together(&self) -> bool {
                match self { $(PortOptions::$variant(_) => <$options as PortType>::OPENS_TOGETHER,)* }
            }

            /// The port that serves it in a kernel datapath; `None`: it needs the userspace datapath.
            pub fn kernel_port(&self) -> Option<KernelPort> {
                match self { $(PortOptions::$variant(options) => options.kernel_port(),)* }
            }

            /// Effect of other options on an open port.
            pub fn change(&self, wanted: &PortOptions) -> OptionChange {
                match (self, wanted) {
                    $((PortOptions::$variant(is), PortOptions::$variant(wanted)) => is.change(wanted),)*
                    _ => OptionChange::Reopen,
                }
            }

            /// The options that `dpif/show` and `dpctl/show` have.
            pub fn shown(&self) -> Vec<(&'static str, String)> {
                match self { $(PortOptions::$variant(options) => options.shown(),)* }
            }

            /// Runs the visitor's code for this type.
            pub fn visit<R, V>(&self, visitor: &V) -> R
            where
                $(V: PortTypeVisitor<$options, Output = R>,)*
            {
                match self { $(PortOptions::$variant(options) => visitor.visit(options),)* }
            }
        }

        /// Code for one port type; [`PortOptions::visit`] needs it for all of them.
        pub trait PortTypeVisitor<T> {
            /// Result, equal for all types.
            type Output;

            /// Runs the code.
            fn visit(&self, options: &T) -> Self::Output;
        }
    };
}

pub(super) use port_types;
