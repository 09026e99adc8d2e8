//! The HTTP server: the gateway in five dialects, the agent API and the console on one port.
//!
//! | module | contents |
//! |---|---|
//! | `http` | the router |
//! | `routes` | the route table: paths, summaries, parameters, response types and handlers |
//! | `gateway` | requests in five dialects, sent to any provider |
//! | `telemetry` | metrics, logs, usage, limits |
//! | `api` | state and types that `letta` and `console` share |
//! | `letta` | durable agents under Letta's paths |
//! | `console` | the web console and its API |
//! | `openapi` | the `OpenAPI` document of all routes |
//! | `health` | `/healthz`, `/readyz`, `/metrics` and the caller's usage |
//! | `listen` | TCP and Unix sockets, TLS and graceful shutdown |
//! | `sign_in` | sign-in of people to the console |
//! | `account_pool` | which of a provider's accounts a request uses |
//! | `provider_key` | the providers that a caller's own key may be sent to |
//! | `access`, `error`, `object`, `records`, `redact`, `response`, `routing`, `sync`, `url` | shared types and functions without further imports |

mod access;
mod account_pool;
mod api;
mod console;
mod error;
mod gateway;
mod health;
mod http;
mod letta;
mod listen;
mod object;
mod openapi;
mod provider_key;
mod records;
mod redact;
mod response;
mod routes;
mod routing;
mod sign_in;
mod sync;
mod telemetry;
mod tenant_routes;
mod url;

pub use crate::access::{Admission, Allowance, Keyring};
pub use crate::account_pool::{
    AccountPool, AccountQuery, Balance, BoundPolicy, OpenRequest, PoolAccount, PoolOptions,
    conversation_start,
};
pub use crate::api::{
    AgentApi, RunCaps, RunTraces, SettingsReport, SimulatorLedger, Summary as RunSummary,
};
pub use crate::gateway::{
    Gateway, InvalidPattern, Passthrough, PrefixPolicy, ReplayMode, model_list_request,
    object_members, object_routes,
};
pub use crate::http::{Server, ServerHandle};
pub use crate::letta::agent_threads;
pub use crate::listen::{GatewayListener, SharedTls, TlsError, TlsSettings, serve};
pub use crate::openapi::openapi;
pub use crate::routes::{DialectRoute, Route, dialect_routes, routes};
pub use crate::routing::{ModelRouter, ModelSource, RouteTarget};
pub use crate::sign_in::{AccessRule, SignIn, SignInSettings};
pub use crate::telemetry::{
    BudgetAlerts, CallTraces, Level, Limits, Log, NoPrices, NullLog, OnStoreFailure, Price,
    PriceTier, Prices, ReloadKind, RetentionResult, SocketLimits, StorePolicy, Telemetry,
    TokenPrices, UsageAmount, UsageKey, UsageRow, budget_log, reset_budget, usage_log,
};
