//! What the examples share: a store in a folder of its own, and simulators, which sign, verify and refuse as the providers do.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::error::Error;

use throughline::models::{self, Endpoint, EndpointModels, Source};
use throughline::{Catalog, Credential, Journal, StoreOptions, open_store};
use throughline_sim::{Options, Simulator};
use throughline_testkit::Folder;

/// A place for an example.
pub(crate) struct Place {
    pub(crate) simulator: Simulator,
    folder: Folder,
}

impl Place {
    /// With simulators that think for themselves.
    pub(crate) async fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        Self::scripted(name, "").await
    }

    /// With simulators that say what the script says, before they think for themselves.
    pub(crate) async fn scripted(name: &str, script: &str) -> Result<Self, Box<dyn Error>> {
        let options = Options { script: script.parse()?, ..Options::default() };
        let simulator = throughline_sim::start(options).await?;
        Ok(Self { simulator, folder: Folder::new(name) })
    }

    /// Its store.
    pub(crate) async fn store(&self) -> Result<Journal, Box<dyn Error>> {
        let url = format!("sqlite://{}", self.folder.join("store.db").display());
        Ok(open_store(&url, &StoreOptions::default()).await?)
    }

    /// Its models: with a real key and a real address, these would be the providers' own.
    pub(crate) fn models(&self) -> Result<EndpointModels, Box<dyn Error>> {
        let mut endpoints = Vec::new();
        for name in ["anthropic", "openai", "gemini"] {
            let row = Catalog::builtin().provider(name).ok_or("it is built in")?;
            let address = format!("{}/at/{name}", self.simulator.url());
            let key = Source::Key(Credential::new("none"));
            endpoints.push(Endpoint::new(name, row, &address, key)?);
        }
        Ok(models::at(Catalog::builtin().clone(), endpoints)?)
    }
}
