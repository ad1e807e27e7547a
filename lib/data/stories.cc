// The built-in corpus of short stories: plots written for this project, filled in by chance.
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/strings.h"
#include "lib/data/builtin.h"
#include "lib/data/shuffle.h"

namespace lumen::data {
namespace {

using Words = std::span<const std::string_view>;

// In a sentence "{hero}" stands for a word of the story's cast and "[a|b]" for one of a choice.
using Plot = std::vector<std::string_view>;

constexpr std::string_view kNames[] = {
    "Mila", "Oren", "Tessa", "Bruno", "Nika",  "Pavel", "Ada",   "Jonas", "Ruth",  "Emil",
    "Iris", "Otto", "Lena",  "Marco", "Wanda", "Felix", "Sofie", "Anton", "Greta", "Hugo"};
constexpr std::string_view kBeasts[] = {"fox",  "hedgehog", "goose", "badger", "hare",
                                        "crow", "otter",    "mole",  "goat",   "squirrel"};
constexpr std::string_view kPlaces[] = {"old mill",      "river",          "market",      "hill",
                                        "harbour",       "quiet forest",   "school yard", "orchard",
                                        "little bridge", "railway station"};
constexpr std::string_view kThings[] = {"lantern",   "kite",      "wooden boat", "music box",
                                        "blue cup",  "bicycle",   "drum",        "paper map",
                                        "red scarf", "brass key", "clock",       "basket"};
constexpr std::string_view kFoods[] = {"bread", "apples",    "soup",   "honey cake",
                                       "plums", "warm milk", "cheese", "pears"};
constexpr std::string_view kWeather[] = {"rain",    "wind",  "snow",    "fog",
                                         "thunder", "frost", "sunshine"};
constexpr std::string_view kColours[] = {"green", "yellow", "grey", "white", "purple", "silver"};
constexpr std::string_view kElders[] = {"grandmother", "grandfather", "aunt",
                                        "uncle",       "father",      "mother"};

const Plot kOpenings = {
    "One [morning|evening|afternoon], {hero} walked to the {place}.",
    "{hero} lived near the {place} with {his} {elder}.",
    "It was a day of {weather}, and {hero} could not sit still.",
    "Every [Monday|Friday|Sunday], {hero} went to the {place} to meet {friend}.",
    "Long before breakfast, {hero} heard a noise outside the window.",
    "There was once a {beast} who lived under the {place}.",
    "{hero} had a {colour} {thing} that nobody else was allowed to touch.",
    "When the {weather} came, most people stayed at home, but not {hero}.",
};

const std::vector<Plot> kPlots = {
    {"{He} wanted to find {his} {thing}, because it had been lost since [spring|yesterday|the last "
     "{weather}].",
     "First {he} looked [under the bed|behind the stove|in the garden], but there was only dust.",
     "\"Have you seen my {thing}?\" {he} asked {friend}.",
     "{friend} shook {friend_his} head and said, \"No, but I will help you look.\"",
     "Together they asked the {beast}, who [said nothing|laughed|pointed at the {place}].",
     "At the {place} they saw something {colour} between the stones.",
     "It was the {thing}, a little wet but not broken.",
     "{hero} was so happy that {he} gave {friend} half of {his} {food}."},
    {"In the grass sat a small {beast} with a hurt foot.",
     "\"Do not be afraid,\" said {hero}, and sat down [a few steps away|very slowly|in the grass].",
     "{He} tied {his} handkerchief around the foot and gave the {beast} some {food}.",
     "The {beast} ate everything and fell asleep.",
     "For [three|five|seven] days {hero} came back with {food} and fresh water.",
     "On the last day the {beast} was gone, but a {colour} feather lay on the stone.",
     "\"That is how it says thank you,\" {his} {elder} explained."},
    {"{He} and {friend} wanted to build a boat out of [old boards|a barrel|two doors].",
     "{friend} held the nails, and {hero} swung the hammer.",
     "The first boat sank at once, and the second one turned around in circles.",
     "\"We need a [longer|wider|lighter] one,\" said {friend}, who was not ready to give up.",
     "They worked until the {weather} drove them into the {place}.",
     "The third boat carried both of them and even the {beast}.",
     "They called it the {colour} {thing}, though nobody knew why."},
    {"{He} was supposed to bring {food} to {his} {elder}.",
     "On the way {he} met {friend}, who was hungry, and gave away one piece.",
     "Then {he} met a {beast}, who was hungrier, and gave away another.",
     "When {he} arrived, the basket was almost empty.",
     "\"I am sorry,\" said {hero}. \"There were so many hungry ones on the road.\"",
     "{his_elder} was silent for a moment and then began to laugh.",
     "\"Sit down,\" said {his_elder}. \"We will share what is left, and it will be enough.\""},
    {"The clock at the {place} had stopped, and no one knew what time it was.",
     "The baker baked too early, and the teacher came too late.",
     "{hero} climbed up the [narrow|creaking|dark] stairs with a {thing} in {his} hand.",
     "Between the wheels sat a {beast}, fast asleep.",
     "\"So it was you!\" whispered {hero}, and carried it down in {his} arms.",
     "Above {him} the clock began to tick again.",
     "That evening everybody ate {food} at exactly the right time."},
    {"{friend} said that nobody could stay awake for a whole night.",
     "\"I can,\" said {hero}, and put a {thing} and some {food} beside the window.",
     "At nine {he} counted the stars, and at ten {he} counted the lamps of the {place}.",
     "At eleven {he} listened to the {weather}.",
     "At midnight a {beast} walked along the wall and looked at {him}.",
     "In the morning {friend} found {hero} asleep with {his} nose on the glass.",
     "\"I almost did it,\" said {hero}. \"And I saw the {beast}, which you did not.\""},
    {"{He} wanted to learn to play the {instrument}, but it sounded terrible.",
     "The {beast} ran away, and {his} {elder} closed the door.",
     "\"Play it again, but more slowly,\" said {friend}.",
     "So {hero} played one note on the first day and two notes on the second.",
     "After a [month|winter|long summer], people stopped at the {place} to listen.",
     "\"Who is playing so well?\" they asked.",
     "{hero} blushed and played the song once more, because now it was easy."},
    {"A letter had come for {him}, but the {weather} had washed the words away.",
     "Only \"{place}\" and \"{colour}\" could still be read.",
     "{hero} put on {his} [boots|coat|hat] and went to see what it meant.",
     "At the {place} there was a {colour} door that {he} had never noticed.",
     "{He} knocked [once|twice|three times].",
     "{friend} opened it and cried, \"You found us! We have been waiting with the {food}.\"",
     "It was a feast, and the {beast} had been invited too."},
    {"{hero} and {friend} both wanted the {thing}.",
     "They pulled at it until it [tore|broke|fell into the water].",
     "Now there was no {thing} at all, and they sat back to back and did not speak.",
     "After a while the {beast} came and lay down between them.",
     "\"I am sorry,\" said {friend} in a small voice.", "\"I am sorry too,\" said {hero}.",
     "The next day they made a new {thing}, {colour} on one side for {hero} and plain on the other "
     "for {friend}."},
    {"The path to the {place} was covered with [leaves|stones|snow].",
     "{hero} took a broom and began to sweep, although nobody had asked {him} to.",
     "\"Why are you doing that?\" asked {friend}.",
     "\"Because my {elder} walks here, and {elder_he} does not see well,\" said {hero}.",
     "{friend} fetched a second broom, and soon the whole street was sweeping.",
     "By noon the path was clean, and there was {food} for everyone.",
     "The {beast} walked over it first, as if it had been made for kings."},
};

const Plot kEndings = {
    "Then they all went home.",
    "And that night {hero} slept very well.",
    "From that day on, {hero} and {friend} were never bored.",
    "{hero} told the story many times, and every time the {beast} grew a little bigger.",
    "\"Tomorrow we will do it again,\" said {friend}.",
    "The {weather} had stopped, and the air smelled of {food}.",
    "Nobody ever found out how the {beast} had known.",
    "{hero} learned that it is better to ask than to guess.",
};

constexpr std::string_view kInstruments[] = {"flute", "violin", "trumpet", "harp"};

std::string_view pick(Words words, Philox& random) {
  return words[random.below(words.size())];
}

// The words that "{…}" stand for in one story.
std::map<std::string, std::string, std::less<>> make_cast(Philox& random) {
  std::map<std::string, std::string, std::less<>> cast;
  const uint64_t hero = random.below(std::size(kNames));
  const uint64_t friend_number =
      (hero + 1 + random.below(std::size(kNames) - 1)) % std::size(kNames);
  // kNames has girls' and boys' names in turn.
  const bool girl = hero % 2 == 0;
  cast["hero"] = kNames[hero];
  cast["friend"] = kNames[friend_number];
  cast["he"] = girl ? "she" : "he";
  cast["He"] = girl ? "She" : "He";
  cast["his"] = girl ? "her" : "his";
  cast["him"] = girl ? "her" : "him";
  cast["friend_his"] = friend_number % 2 == 0 ? "her" : "his";
  const uint64_t elder = random.below(std::size(kElders));
  const bool old_woman = elder == 0 || elder == 2 || elder == 5;
  cast["elder"] = kElders[elder];
  cast["elder_he"] = old_woman ? "she" : "he";
  cast["his_elder"] = str("the ", old_woman ? "woman" : "man");
  cast["beast"] = pick(kBeasts, random);
  cast["place"] = pick(kPlaces, random);
  cast["thing"] = pick(kThings, random);
  cast["food"] = pick(kFoods, random);
  cast["weather"] = pick(kWeather, random);
  cast["colour"] = pick(kColours, random);
  cast["instrument"] = pick(kInstruments, random);
  return cast;
}

// Chooses in "[a|b]", then fills in "{…}". Choices may hold names but no choices.
std::string fill_in(std::string_view sentence,
                    const std::map<std::string, std::string, std::less<>>& cast, Philox& random) {
  std::string chosen;
  while (!sentence.empty()) {
    const size_t open = std::min(sentence.find('['), sentence.size());
    chosen += sentence.substr(0, open);
    sentence.remove_prefix(open);
    if (sentence.empty()) break;
    const size_t close = sentence.find(']');
    std::vector<std::string_view> choices(1, sentence.substr(1, close - 1));
    for (size_t bar; (bar = choices.back().find('|')) != std::string_view::npos;) {
      const std::string_view rest = choices.back().substr(bar + 1);
      choices.back() = choices.back().substr(0, bar);
      choices.push_back(rest);
    }
    chosen += choices[random.below(choices.size())];
    sentence.remove_prefix(close + 1);
  }
  std::string text;
  for (std::string_view rest = chosen; !rest.empty();) {
    const size_t open = std::min(rest.find('{'), rest.size());
    text += rest.substr(0, open);
    rest.remove_prefix(open);
    if (rest.empty()) break;
    const size_t close = rest.find('}');
    const auto word = cast.find(rest.substr(1, close - 1));
    LUMEN_CHECK(word != cast.end());
    text += word->second;
    rest.remove_prefix(close + 1);
  }
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

}  // namespace

std::string make_stories() {
  constexpr size_t kBytes = 100'000;
  std::string text;
  for (uint64_t story = 0; text.size() < kBytes; ++story) {
    Philox random = random_stream(0, Purpose::kText, story);
    const auto cast = make_cast(random);
    std::vector<std::string_view> sentences = {kOpenings[random.below(kOpenings.size())]};
    const Plot& plot = kPlots[random.below(kPlots.size())];
    sentences.insert(sentences.end(), plot.begin(), plot.end());
    sentences.push_back(kEndings[random.below(kEndings.size())]);
    if (story > 0) text += "\n\n";
    for (size_t i = 0; i < sentences.size(); ++i) {
      if (i > 0) text += ' ';
      text += fill_in(sentences[i], cast, random);
    }
  }
  return text + "\n";
}

}  // namespace lumen::data
