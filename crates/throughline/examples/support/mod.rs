//! Setup shared by the examples: a store in a temporary directory, and simulators that sign, verify
//! and reject like the real providers.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::error::Error;

use throughline::codec::Catalog;
use throughline::models::{self, Credential, CredentialSource, Endpoint, EndpointModels};
use throughline::store::{self, Journal};
use throughline_sim::{Options, Simulator};
use throughline_testkit::Folder;

/// The store and the simulators of one example.
pub(crate) struct ExampleEnv {
    pub(crate) simulator: Simulator,
    folder: Folder,
}

impl ExampleEnv {
    /// Starts simulators without a script.
    pub(crate) async fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        Self::scripted(name, "").await
    }

    /// Starts simulators that first play the script and then generate their own responses.
    pub(crate) async fn scripted(name: &str, script: &str) -> Result<Self, Box<dyn Error>> {
        let options = Options { script: script.parse()?, ..Options::default() };
        let simulator = throughline_sim::start(options).await?;
        Ok(Self { simulator, folder: Folder::new(name) })
    }

    /// Opens the store in the temporary directory.
    pub(crate) async fn store(&self) -> Result<Journal, Box<dyn Error>> {
        let url = format!("sqlite://{}", self.folder.join("store.db").display());
        Ok(store::open(&url, &store::Options::default()).await?)
    }

    /// Returns models that call the simulators. With real addresses and keys, the same code would
    /// return models that call the providers.
    pub(crate) fn models(&self) -> Result<EndpointModels, Box<dyn Error>> {
        let mut endpoints = Vec::new();
        for name in ["anthropic", "openai", "gemini"] {
            let row = Catalog::builtin().provider(name).ok_or("it is built in")?;
            let address = format!("{}/at/{name}", self.simulator.url());
            let key = CredentialSource::Key(Credential::new("none"));
            endpoints.push(Endpoint::new(name, row, &address, key)?);
        }
        Ok(models::with_endpoints(Catalog::builtin().clone(), endpoints)?)
    }
}
