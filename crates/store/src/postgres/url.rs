//! Store URLs: separates the parameters that this crate handles from those of tokio-postgres.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;

use crate::postgres::tls::PostgresTls;
use crate::rejection::{Result, invalid};

/// A parsed store URL.
#[derive(Debug)]
pub(super) struct PostgresUrl {
    pub(super) config: Config,
    pub(super) tls: PostgresTls,
    /// Whether a pooler between this process and the server may run each transaction on another
    /// connection to the server.
    pub(super) pgbouncer: bool,
}

impl PostgresUrl {
    pub(super) fn parse(url: &str) -> Result<Self> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid!("a PostgreSQL URL must start with postgres://"));
        }
        let (address, parameters) = split(url);
        let (mut tls, mut pgbouncer, mut others) = (PostgresTls::default(), false, Vec::new());
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let text = || {
                let text = percent_decode_str(value).decode_utf8();
                let text = text.map_err(|_| invalid!("{name} in the database URL is not UTF-8"))?;
                if text.is_empty() {
                    return Err(invalid!("{name} in the database URL has no value"));
                }
                Ok(text.into_owned())
            };
            match name {
                "sslmode" => tls.sslmode = Some(text()?),
                "sslrootcert" => tls.sslrootcert = Some(text()?),
                "sslcert" => tls.sslcert = Some(PathBuf::from(text()?)),
                "sslkey" => tls.sslkey = Some(PathBuf::from(text()?)),
                "pgbouncer" => {
                    pgbouncer = match &*text()? {
                        "true" => true,
                        "false" => false,
                        _ => {
                            return Err(invalid!(
                                "pgbouncer in the database URL must be true or false"
                            ));
                        }
                    };
                }
                _ => others.push(parameter),
            }
        }
        let others =
            if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        let config: Config =
            format!("{address}{others}").parse().map_err(|error: tokio_postgres::Error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let cause = cause.unwrap_or_else(|| error.to_string());
                invalid!("the database URL is invalid: {cause}")
            })?;
        Ok(Self { config, tls, pgbouncer })
    }
}

/// Splits a URL before its parameters. A user name or password may contain a question mark.
fn split(url: &str) -> (&str, &str) {
    let host = url.find('@').unwrap_or(0);
    let (_, rest) = url.split_at(host);
    match rest.find('?') {
        Some(mark) => {
            let (address, parameters) = url.split_at(host + mark);
            (address, parameters.trim_start_matches('?'))
        }
        None => (url, ""),
    }
}
