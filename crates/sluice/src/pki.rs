//! Options of keys and certificates for remotes by `ssl:`, the same for all tools.

use tls::Settings;

/// Description for `--help`.
pub(crate) const HELP: &str = "\
SSL/TLS, for remotes by ssl: (files in PEM):
  -p, --private-key=FILE      private key
  -c, --certificate=FILE      certificate for the private key
  -C, --ca-cert=FILE          CA certificates that the server's must chain to; none trusts every server
  --bootstrap-ca-cert=FILE    the same; if FILE is missing, write it from the first server
  --peer-ca-cert=FILE         certificates to send after the own one
  --ssl-protocols=VERSIONS    a list, or ranges such as TLSv1.2-TLSv1.3 (default: TLSv1.2+)
  --ssl-ciphers=CIPHERS       ciphers up to TLS 1.2, in the syntax of OpenSSL
  --ssl-ciphersuites=SUITES   cipher suites of TLS 1.3, in the syntax of OpenSSL
  --ssl-server-name=HOST      name HOST to the server, in place of that of the remote
";

/// The long options; all have a value.
pub(crate) const OPTIONS: &[&str] = &[
    "--private-key",
    "--certificate",
    "--ca-cert",
    "--bootstrap-ca-cert",
    "--peer-ca-cert",
    "--ssl-protocols",
    "--ssl-ciphers",
    "--ssl-ciphersuites",
    "--ssl-server-name",
];

/// The long name of a short option.
pub(crate) fn long_name(letter: char) -> Option<&'static str> {
    match letter {
        'p' => Some("private-key"),
        'c' => Some("certificate"),
        'C' => Some("ca-cert"),
        _ => None,
    }
}

/// Whether the option is one of these.
pub(crate) fn has(name: &str) -> bool {
    OPTIONS.iter().any(|option| option.strip_prefix("--") == Some(name))
}

/// Consumes an option; `false` if it is not one of these.
pub(crate) fn take(settings: &mut Settings, name: &str, value: &str) -> bool {
    match name {
        "private-key" => settings.private_key = Some(value.into()),
        "certificate" => settings.certificate = Some(value.into()),
        "ca-cert" | "bootstrap-ca-cert" => {
            settings.ca_cert = Some(value.into());
            settings.bootstrap = name == "bootstrap-ca-cert";
        }
        "peer-ca-cert" => settings.peer_ca_cert = Some(value.into()),
        "ssl-protocols" => settings.protocols = Some(value.to_string()),
        "ssl-ciphers" => settings.ciphers = Some(value.to_string()),
        "ssl-ciphersuites" => settings.ciphersuites = Some(value.to_string()),
        "ssl-server-name" => settings.server_name = Some(value.to_string()),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_its_place() {
        let mut settings = Settings::default();
        for name in OPTIONS.iter().filter_map(|option| option.strip_prefix("--")) {
            let before = settings.clone();
            assert!(has(name) && take(&mut settings, name, name), "{name}");
            assert_ne!(settings, before, "{name}");
            assert!(HELP.contains(&format!("--{name}=")), "{name}");
        }
        assert!(settings.ca_cert == Some("bootstrap-ca-cert".into()) && settings.bootstrap);
        assert!(take(&mut settings, "ca-cert", "x") && !settings.bootstrap);
        assert!(!has("db") && !take(&mut settings, "db", ""));
        assert!(['p', 'c', 'C'].into_iter().all(|c| long_name(c).is_some_and(has)));
    }
}
