//! What people and scripts read: progress while a search runs, and the story of a stored run. Reports
//! read events and stored runs only; they judge nothing and change nothing.

mod baselines;
mod progress;
mod story;

pub use baselines::baselines_table;
pub use progress::{Format, Progress};
pub use story::{Story, Winner, setting_line};
