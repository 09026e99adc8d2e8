//! Strings that are cheap to clone and compare by value.

use std::borrow::Cow;
use std::sync::Arc;

/// A shared string: the name of a model or tool, or an external id.
pub type Name = Arc<str>;

/// A string that is usually a constant, and is otherwise read from a document.
pub type Label = Cow<'static, str>;
