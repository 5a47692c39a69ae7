// SPDX-License-Identifier: BSL-1.0
#include "curves.hpp"

#include <algorithm>
#include <cmath>

#include "drawing.hpp"

namespace driver {

namespace {

constexpr const char* colors[] = {"#06c", "#c40", "#283", "#829", "#a80", "#088", "#666", "#d28"};

}  // namespace

std::string svg_of(const std::string& title, const std::vector<curve>& curves, double of_one) {
  using namespace drawing;
  constexpr double legend = 150;  // pixels to the right of the curves
  double least_ranks = 1e9;
  double most_ranks = 1;
  double least = 1e300;
  double most = 0;
  for (const curve& each : curves) {
    for (const curve_point& one : each.points) {
      least_ranks = std::min(least_ranks, static_cast<double>(one.ranks));
      most_ranks = std::max(most_ranks, static_cast<double>(one.ranks));
      least = std::min(least, one.least);
      most = std::max(most, std::max(one.most, of_one * one.ranks));
    }
  }
  most_ranks = std::max(most_ranks, 2 * least_ranks);
  least *= 0.8;
  most *= 1.25;
  const auto x = [&](double ranks) {
    return left + (width - legend - left - right) * std::log(ranks / least_ranks) / std::log(most_ranks / least_ranks);
  };
  const auto y = [&](double speed) {
    return height - bottom - (height - top - bottom) * std::log(speed / least) / std::log(most / least);
  };
  std::string text = begin_drawing(height, title);
  for (double power = std::pow(10.0, std::floor(std::log10(least))); power < most; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double speed = factor * power;
      if (speed >= least && speed <= most) {
        text += format(
            "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
            left, y(speed), width - legend - right, left - 8, y(speed) + 4, speed);
      }
    }
  }
  for (double ranks = least_ranks; ranks <= most_ranks * 1.001; ranks *= 2) {
    text +=
        format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n", x(ranks), height - bottom + 20, ranks);
  }
  text += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">ranks</text>\n",
                 (left + width - legend - right) / 2, height - 10);
  text += format("<text transform=\"translate(18 %.1f) rotate(-90)\" text-anchor=\"middle\">images a second</text>\n",
                 (top + height - bottom) / 2);
  text += format(
      "<path id=\"ideal\" d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"#999\" stroke-dasharray=\"6 4\" "
      "fill=\"none\"/>\n",
      x(least_ranks), y(of_one * least_ranks), x(most_ranks), y(of_one * most_ranks));
  text += format("<text x=\"%g\" y=\"%g\" fill=\"#999\">- - ideal</text>\n", width - legend, top + 14);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const char* const color = colors[i % std::size(colors)];
    std::string line;
    std::string band;
    for (const curve_point& one : curves[i].points) {
      line += format("%s%.1f %.1f", line.empty() ? "M" : "L", x(one.ranks), y(one.images_per_second));
      band += format("%s%.1f %.1f", band.empty() ? "M" : "L", x(one.ranks), y(one.most));
    }
    for (auto one = curves[i].points.rbegin(); one != curves[i].points.rend(); ++one) {
      band += format("L%.1f %.1f", x(one->ranks), y(one->least));
    }
    text += format("<path class=\"interval\" d=\"") + band + format("Z\" fill=\"%s\" fill-opacity=\"0.12\"/>\n", color);
    text += "<path class=\"predicted\" d=\"" + line +
            format("\" stroke=\"%s\" stroke-width=\"2\" fill=\"none\"/>\n", color);
    for (const curve_point& one : curves[i].points) {
      text += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>", x(one.ranks),
                     y(one.images_per_second), color) +
              escaped(curves[i].label) +
              format(", %d ranks: %.1f images/s (%.1f to %.1f)</title></circle>\n", one.ranks, one.images_per_second,
                     one.least, one.most);
    }
    text +=
        format("<text x=\"%g\" y=\"%g\" fill=\"%s\">", width - legend, top + 34 + 18 * static_cast<double>(i), color) +
        escaped(curves[i].label) + "</text>\n";
  }
  return text + "</svg>\n";
}

}  // namespace driver
