// SPDX-License-Identifier: BSL-1.0
//
// Drawings: images a second over ranks with the ideal line, and bars.
#include <algorithm>

#include "drawing.hpp"
#include "sweep.hpp"

namespace driver {

std::string svg_of(const std::string& title, const std::vector<row>& rows) {
  using namespace drawing;
  const row& first = rows.front();
  const double of_one = first.images_per_second / first.ranks;
  double most_ranks = 1;
  double most = 0;
  for (const row& each : rows) {
    most_ranks = std::max(most_ranks, static_cast<double>(each.ranks));
    most = std::max(most, std::max(each.images_per_second, of_one * each.ranks));
  }
  most = std::max(most, 1e-9) * 1.05;
  const auto x = [&](double ranks) { return left + (width - left - right) * ranks / most_ranks; };
  const auto y = [&](double speed) { return height - bottom - (height - top - bottom) * speed / most; };
  std::string text = begin_drawing(height, title);
  for (double speed = 0; speed <= most; speed += tick_of(most)) {
    text += format(
        "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
        left, y(speed), width - right, left - 8, y(speed) + 4, speed);
  }
  for (const row& each : rows) {
    text += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n", x(each.ranks),
                   height - bottom + 20, each.ranks);
  }
  text += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">ranks</text>\n", (left + width - right) / 2,
                 height - 10);
  text += format("<text transform=\"translate(18 %.1f) rotate(-90)\" text-anchor=\"middle\">images a second</text>\n",
                 (top + height - bottom) / 2);
  text +=
      format("<path id=\"ideal\" d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"#999\" stroke-dasharray=\"6 4\" fill=\"none\"/>\n",
             x(0), y(0), x(most_ranks), y(of_one * most_ranks));
  std::string line;
  for (const row& each : rows) {
    line += format("%s%.1f %.1f", line.empty() ? "M" : "L", x(each.ranks), y(each.images_per_second));
  }
  text += "<path id=\"measured\" d=\"" + line + "\" stroke=\"#06c\" stroke-width=\"2\" fill=\"none\"/>\n";
  for (const row& each : rows) {
    text += format(
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#06c\"><title>%d ranks: %.1f images/s, %.0f %% of "
        "ideal</title></circle>\n",
        x(each.ranks), y(each.images_per_second), each.ranks, each.images_per_second, 100 * each.efficiency);
  }
  text += format(
      "<text x=\"%g\" y=\"%g\" fill=\"#999\">- - ideal</text>"
      "<text x=\"%g\" y=\"%g\" fill=\"#06c\">measured</text>\n</svg>\n",
      left + 12, top + 14, left + 12, top + 32);
  return text;
}

std::string svg_of(const std::string& title, const std::vector<bar>& bars) {
  using namespace drawing;
  constexpr double begin = 300;  // of the bars
  constexpr double thick = 26;
  double most = 1e-9;
  for (const bar& each : bars) {
    most = std::max(most, each.images_per_second);
  }
  std::string text = begin_drawing(top + thick * static_cast<double>(bars.size()) + right, title);
  double y = top;
  for (const bar& each : bars) {
    const double length = (width - begin - left) * each.images_per_second / most;
    text +=
        format("<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">", begin - 8, y + 17) + escaped(each.label) + "</text>";
    text += format(
        "<rect class=\"bar\" x=\"%g\" y=\"%.1f\" width=\"%.1f\" height=\"%g\" fill=\"#06c\"/>"
        "<text x=\"%.1f\" y=\"%.1f\">%.1f</text>\n",
        begin, y + 3, length, thick - 6, begin + length + 6, y + 17, each.images_per_second);
    y += thick;
  }
  text += "</svg>\n";
  return text;
}

}  // namespace driver
