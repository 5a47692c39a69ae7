// SPDX-License-Identifier: BSL-1.0
//
// The reader of trace files: the parser passes events one after another, and errors name the event and the field.
#include <algorithm>      // std::sort
#include <cmath>          // std::floor
#include <optional>       // std::optional
#include <tuple>          // std::tie
#include <unordered_map>  // std::unordered_map

#include <nlohmann/json.hpp>

#include "gradus/core/format.hpp"
#include "trace.hpp"
#include "trace_fields.hpp"

namespace gradus::report {
namespace {

class reader {
 public:
  reader(trace& result, const std::string& name, std::size_t size) : result_{result}, name_{name}, size_{size} {}

  // What the parser calls; false would stop it, but errors are thrown.
  bool null() { return take({value::kind::null, 0, {}}); }
  bool boolean(bool yes) { return take({value::kind::boolean, yes ? 1.0 : 0.0, {}}); }
  bool number_integer(std::int64_t number) { return take({value::kind::number, static_cast<double>(number), {}}); }
  bool number_unsigned(std::uint64_t number) { return take({value::kind::number, static_cast<double>(number), {}}); }
  bool number_float(double number, const std::string&) { return take({value::kind::number, number, {}}); }
  bool string(std::string& text) { return take({value::kind::text, 0, std::move(text)}); }
  bool binary(nlohmann::json::binary_t&) { return true; }

  bool key(std::string& text) {
    key_ = std::move(text);
    return true;
  }

  bool start_object(std::size_t) {
    context next = context::skipped;
    if (contexts_.empty()) {
      next = context::root;
    } else if (contexts_.back() == context::root && key_ == "otherData") {
      next = context::other_data;
    } else if (contexts_.back() == context::events) {
      next = context::event;
      for (value& each : event_) {
        each.what = value::kind::absent;
      }
    } else if (contexts_.back() == context::event && key_ == "args") {
      next = context::args;
    } else {
      take({value::kind::object, 0, {}});
    }
    return enter(next);
  }

  bool start_array(std::size_t) {
    if (contexts_.empty()) {
      fail("expected an object with traceEvents and otherData, as gradus writes it, came a list");
    }
    context next = context::skipped;
    if (contexts_.back() == context::root && key_ == "traceEvents") {
      next = context::events;
      has_events_ = true;
    } else if (contexts_.back() == context::other_data) {
      next = context::list;
      list_.clear();
      list_key_ = key_;
    } else {
      take({value::kind::list, 0, {}});
    }
    return enter(next);
  }

  bool end_object() {
    const context left = contexts_.back();
    contexts_.pop_back();
    if (left == context::event) {
      finish_event();
      ++events_;
    }
    return true;
  }

  bool end_array() {
    if (contexts_.back() == context::list) {
      other_lists_[list_key_] = std::move(list_);
      list_ = {};
    }
    contexts_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception& error) {
    std::string message = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ..." without its number
    if (const std::size_t bracket = message.find("] "); bracket != std::string::npos) {
      message.erase(0, bracket + 2);
    }
    const bool cut_short = position > size_;
    fail((cut_short ? "the file ends in the middle of the JSON text, after " : "is not valid JSON at byte ") +
         std::to_string(cut_short ? size_ : position) + (cut_short ? " bytes" : "") +
         (events_ ? " and " + std::to_string(events_) + " events" : "") + ": " + in_quotes(message) +
         (token.empty() || cut_short ? "" : " near " + in_quotes(token)) +
         (cut_short ? ". Was the program that recorded it stopped, or the copy of the file cut short?" : ""));
  }

  /// After the last character: what the file says of itself, and what belongs together.
  void finish() {
    if (!has_events_) {
      fail("has no list traceEvents: it is no trace");
    }
    const value version = other("gradus");
    if (version.what == value::kind::absent) {
      fail("has no otherData.gradus: it was not recorded by gradus");
    }
    if ((version.what != value::kind::text || version.text != "1") &&
        (version.what != value::kind::number || version.number != 1)) {
      fail("otherData.gradus: expected version \"1\" of the format, came " + version.describe());
    }
    where_ = "otherData";
    result_.ranks = static_cast<std::int32_t>(integer(other("ranks"), "ranks", 1, most_ranks));
    const value threads = other("threads");
    const value batch_size = other("batch_size");
    const value model = other("model");
    if (threads.what != value::kind::absent) {
      result_.threads = static_cast<std::int32_t>(integer(threads, "threads", 0, most_ranks));
    }
    if (batch_size.what != value::kind::absent) {
      result_.batch_size = integer(batch_size, "batch_size", 0, std::int64_t{1} << 40);
    }
    if (model.what != value::kind::absent) {
      result_.model = shortened(text(model, "model"));
    }
    for (const value& host : ranks_list("hosts")) {
      result_.hosts.push_back(shortened(text(host, "hosts")));
    }
    for (const value& error : ranks_list("clock_error_us")) {
      result_.clock_error_us.push_back(number(error, "clock_error_us", 0, longest_time));
    }
    for (const value& dropped : ranks_list("dropped")) {
      result_.dropped.push_back(integer(dropped, "dropped", 0, std::int64_t{1} << 53));
    }
    if (largest_rank_ >= result_.ranks) {
      fail("an event names rank " + std::to_string(largest_rank_) + ", but otherData.ranks is " +
           std::to_string(result_.ranks));
    }
    // The figures of a rank take memory: more of them than could be in the file are not believed.
    if (static_cast<std::size_t>(result_.ranks) > silent_ranks + events_) {
      fail("otherData.ranks is " + std::to_string(result_.ranks) + ", but there are only " + std::to_string(events_) +
           " events: gradus writes at least one for each rank. Was the file cut by hand?");
    }
    finish_times();
    finish_flows();
    if (unknown_phases_ > 0) {
      result_.notes.push_back(std::to_string(unknown_phases_) + " events are neither spans, arrows nor names (ph " +
                              in_quotes(unknown_phase_) + " for one) and were left out.");
    }
    if (unknown_categories_ > 0) {
      result_.notes.push_back(std::to_string(unknown_categories_) + " spans have a category that is not known (" +
                              in_quotes(unknown_category_) + " for one); they count as other.");
    }
    if (lonely_flows_ > 0) {
      result_.notes.push_back(std::to_string(lonely_flows_) +
                              " arrows have only one end in the trace and were left out.");
    }
  }

 private:
  enum class context : std::uint8_t { root, events, event, args, other_data, list, skipped };

  [[noreturn]] void fail(const std::string& message) const { throw report_error{name_ + ": " + message}; }
  [[noreturn]] void fail_event(const std::string& what, const std::string& expected, const value& came) const {
    fail(where_ + ": " + what + ": expected " + expected + ", came " + came.describe());
  }

  bool enter(context next) {
    if (contexts_.size() >= deepest) {
      fail("lists and objects are nested more than " + std::to_string(deepest) + " deep: it is no trace");
    }
    contexts_.push_back(next);
    return true;
  }

  bool take(value&& came) {
    if (contexts_.empty()) {
      fail("expected an object with traceEvents and otherData, came " + came.describe());
    }
    switch (contexts_.back()) {
      case context::root:
        if (key_ == "traceEvents") {
          fail("traceEvents: expected a list, came " + came.describe());
        }
        if (key_ == "otherData") {
          fail("otherData: expected an object, came " + came.describe());
        }
        break;
      case context::events:
        fail("event " + std::to_string(events_) + ": expected an object, came " + came.describe());
      case context::event:
        if (key_ == "args") {
          fail("event " + std::to_string(events_) + ": args: expected an object, came " + came.describe());
        }
        [[fallthrough]];
      case context::args: {
        const bool in_args = contexts_.back() == context::args;
        for (std::size_t i = 0; i < field_names.size(); ++i) {
          if (field_names[i].in_args == in_args && key_ == field_names[i].text) {
            event_[i] = std::move(came);
            break;
          }
        }
        break;
      }
      case context::other_data:
        other_[key_] = std::move(came);
        break;
      case context::list:
        if (list_.size() >= static_cast<std::size_t>(most_ranks)) {
          fail("otherData." + in_quotes(list_key_) + ": the list has more than " + std::to_string(most_ranks) +
               " entries");
        }
        list_.push_back(std::move(came));
        break;
      case context::skipped:
        break;
    }
    return true;
  }

  const value& of(field which) const { return event_[static_cast<std::size_t>(which)]; }
  bool has(field which) const { return of(which).what != value::kind::absent; }

  double number(const value& came, const std::string& what, double least, double greatest) const {
    if (came.what != value::kind::number || !(came.number >= least && came.number <= greatest)) {
      char range[80];
      gradus::format_text(range, sizeof range, "a number from %.15g to %.15g", least, greatest);
      fail_event(what, range, came);
    }
    return came.number;
  }
  std::int64_t integer(const value& came, const std::string& what, std::int64_t least, std::int64_t greatest) const {
    if (came.what != value::kind::number || came.number != std::floor(came.number) ||
        !(came.number >= static_cast<double>(least) && came.number <= static_cast<double>(greatest))) {
      fail_event(what, "a whole number from " + std::to_string(least) + " to " + std::to_string(greatest), came);
    }
    return static_cast<std::int64_t>(came.number);
  }
  const std::string& text(const value& came, const std::string& what) const {
    if (came.what != value::kind::text) {
      fail_event(what, "a text", came);
    }
    return came.text;
  }
  /// The text of a field that may be left out.
  std::string optional_text(field which) const {
    return has(which) ? shortened(text(of(which), field_names[static_cast<std::size_t>(which)].text)) : std::string{};
  }

  value other(const std::string& key) const {
    if (other_lists_.count(key) != 0) {
      return {value::kind::list, 0, {}};
    }
    const auto found = other_.find(key);
    return found == other_.end() ? value{} : found->second;
  }
  /// A list with one entry a rank, or nothing.
  std::vector<value> ranks_list(const std::string& key) const {
    const auto found = other_lists_.find(key);
    if (found == other_lists_.end()) {
      if (other_.count(key) != 0) {
        fail_event(key, "a list with one entry a rank", other_.at(key));
      }
      return {};
    }
    if (found->second.size() != static_cast<std::size_t>(result_.ranks)) {
      fail("otherData: " + key + ": expected " + std::to_string(result_.ranks) + " entries, one a rank, came " +
           std::to_string(found->second.size()));
    }
    return found->second;
  }

  void finish_event() {
    where_ = "event " + std::to_string(events_);
    if (has(field::name) && of(field::name).what == value::kind::text) {
      where_ += " (" + in_quotes(of(field::name).text) + ")";
    }
    const std::string& phase = text(of(field::phase), "ph");
    if (phase == "X") {
      take_span();
    } else if (phase == "M") {
      take_name();
    } else if (phase == "s" || phase == "f") {
      take_flow(phase == "s");
    } else {
      ++unknown_phases_;
      unknown_phase_ = phase;
    }
  }

  std::pair<int, int> take_track() {
    const auto rank = static_cast<int>(integer(of(field::rank), "pid", 0, most_ranks - 1));
    const auto thread = static_cast<int>(integer(of(field::track), "tid", 0, most_threads - 1));
    largest_rank_ = std::max(largest_rank_, rank);
    return {rank, thread % tracks::apart};
  }

  void take_span() {
    const auto where = take_track();
    span next;
    next.start = number(of(field::time), "ts", -longest_time, longest_time);
    next.duration = number(of(field::duration), "dur", 0, longest_time);
    label kind;
    const std::string& category_name = text(of(field::category), "cat");
    const auto found = std::find(category_names.begin(), category_names.end(), category_name);
    if (found == category_names.end()) {
      ++unknown_categories_;
      unknown_category_ = category_name;
    } else {
      kind.what = static_cast<category>(found - category_names.begin());
    }
    kind.name = shortened(text(of(field::name), "name"));
    kind.operation = optional_text(field::operation);
    kind.bucket = optional_text(field::bucket);
    kind.layer = optional_text(field::layer);
    kind.waits_for = optional_text(field::waits_for);
    if (has(field::bytes)) {
      kind.bytes = integer(of(field::bytes), "bytes", 0, std::int64_t{1} << 53);
    }
    if (has(field::peer)) {
      kind.peer = static_cast<std::int32_t>(integer(of(field::peer), "peer", 0, most_ranks - 1));
      largest_rank_ = std::max(largest_rank_, kind.peer);
    }
    if (has(field::stage)) {
      kind.stage = static_cast<std::int32_t>(integer(of(field::stage), "stage", 0, most_stages - 1));
    }
    if (has(field::micro_batch)) {
      kind.micro_batch =
          static_cast<std::int32_t>(integer(of(field::micro_batch), "micro_batch", 0, most_micro_batches - 1));
    }
    if (has(field::step)) {
      next.step = static_cast<std::int32_t>(integer(of(field::step), "step", 0, (std::int64_t{1} << 31) - 1));
    }
    if (has(field::all_arrived)) {
      next.all_arrived = number(of(field::all_arrived), "all_arrived_us", -longest_time, longest_time);
    }
    if (has(field::last_rank)) {
      next.last_rank = static_cast<std::int32_t>(integer(of(field::last_rank), "last_rank", 0, most_ranks - 1));
      largest_rank_ = std::max(largest_rank_, next.last_rank);
    }
    const auto [known, is_new] =
        labels_.try_emplace(std::move(kind), static_cast<std::uint32_t>(result_.labels.size()));
    if (is_new) {
      result_.labels.push_back(known->first);
    }
    next.label = known->second;
    result_.tracks[where].push_back(next);
  }

  void take_name() {
    const std::string& name = text(of(field::name), "name");
    if (name == "thread_name" && has(field::named)) {
      result_.track_names.try_emplace(take_track(), shortened(text(of(field::named), "args.name")));
    }
  }

  void take_flow(bool begins) {
    const auto [rank, track] = take_track();
    const double time = number(of(field::time), "ts", -longest_time, longest_time);
    const value& id = of(field::id);
    if (id.what != value::kind::text && id.what != value::kind::number) {
      fail_event("id", "a text or a number", id);
    }
    ends& both = flows_[id.what == value::kind::text ? id.text : id.describe()];
    (begins ? both.from : both.to) = flow::end_point{rank, track, time};
  }

  void finish_times() {
    double first = longest_time;
    for (const auto& [key, spans] : result_.tracks) {
      for (const span& each : spans) {
        first = std::min(first, each.start);
      }
    }
    for (auto& [key, spans] : result_.tracks) {
      for (span& each : spans) {
        each.start -= first;
        each.all_arrived -= first;
        result_.end = std::max(result_.end, each.end());
      }
      std::stable_sort(spans.begin(), spans.end(), [](const span& a, const span& b) {
        return a.start != b.start ? a.start < b.start : a.duration > b.duration;
      });
    }
    if (result_.tracks.empty()) {
      fail("has no spans (events with ph \"X\"): was anything recorded?");
    }
    first_ = first;
  }

  void finish_flows() {
    for (auto& [id, both] : flows_) {
      if (!both.from || !both.to) {
        ++lonely_flows_;
        continue;
      }
      both.from->time -= first_;
      both.to->time -= first_;
      result_.flows.push_back({*both.from, *both.to});
    }
    std::sort(result_.flows.begin(), result_.flows.end(), [](const flow& a, const flow& b) {
      return std::tie(a.from.time, a.from.rank, a.to.rank, a.to.time) <
             std::tie(b.from.time, b.from.rank, b.to.rank, b.to.time);
    });
  }

  struct ends {
    std::optional<flow::end_point> from, to;
  };

  trace& result_;
  const std::string& name_;
  std::size_t size_;  // of the text, bytes
  std::vector<context> contexts_;
  std::string key_, list_key_, where_;
  std::array<value, static_cast<std::size_t>(field::count)> event_;
  std::map<std::string, value> other_;
  std::map<std::string, std::vector<value>> other_lists_;
  std::vector<value> list_;
  std::map<label, std::uint32_t> labels_;
  std::unordered_map<std::string, ends> flows_;
  bool has_events_ = false;
  std::size_t events_ = 0, unknown_phases_ = 0, unknown_categories_ = 0, lonely_flows_ = 0;
  std::string unknown_phase_, unknown_category_;
  int largest_rank_ = 0;
  double first_ = 0;
};

}  // namespace

bool label::operator<(const label& other) const {
  return std::tie(name, what, bytes, peer, stage, micro_batch, operation, bucket, layer, waits_for) <
         std::tie(other.name, other.what, other.bytes, other.peer, other.stage, other.micro_batch, other.operation,
                  other.bucket, other.layer, other.waits_for);
}

const std::vector<span>& trace::track(int rank, int number) const {
  static const std::vector<span> none;
  const auto found = tracks.find({rank, number});
  return found == tracks.end() ? none : found->second;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 120;
  std::string result = "'";
  for (const char c : text.substr(0, longest)) {
    result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  return result + (text.size() > longest ? "...'" : "'");
}

trace read_trace(std::string_view text, const std::string& name) {
  trace result;
  if (text.empty()) {
    throw report_error{name + ": the file is empty"};
  }
  reader events{result, name, text.size()};
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  events.finish();
  return result;
}

}  // namespace gradus::report
