//! What people and scripts read: progress while a search runs, and the story of a stored run. Reports
//! read events and stored runs only; they judge nothing and change nothing.

mod baselines;
pub mod chart;
mod checks;
mod csv;
mod curves;
mod page;
mod progress;
mod retimed;
mod story;
pub mod suite;
pub mod turns;
mod work;

pub use baselines::baselines_table;
pub use checks::by_size;
pub use curves::{CurveError, best_so_far};
pub use page::{PageError, RunReport, bands_picture, comparison_page};
pub use progress::{Doing, Format, Progress, Told, opening, told};
pub use retimed::RetimedLine;
pub use story::{Story, Winner, setting_line};
pub use work::work;
