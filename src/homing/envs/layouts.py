"""Maze layouts as text: `#` wall, `R` robot start, `G` possible goal, `B` ball start, `.` free.

Row i, column j of the text is the cell centred at x = i·cell, y = j·cell.
"""

LAYOUTS: dict[str, str] = {
    "u": """
        #####
        #RGG#
        ###G#
        #GGG#
        #####""",
    "u_eval": """
        #####
        #R..#
        ###.#
        #GGG#
        #####""",
    "u_single_eval": """
        #####
        #R..#
        ###.#
        #G..#
        #####""",
    "u_path_1_3": """
        #####
        #RGG#
        ###G#
        #...#
        #####""",
    "u_path_1_4": """
        #####
        #RGG#
        ###G#
        #..G#
        #####""",
    "u_path_1_5": """
        #####
        #RGG#
        ###G#
        #.GG#
        #####""",
    "u_path_5_6": """
        #####
        #R..#
        ###.#
        #GG.#
        #####""",
    "big": """
        ########
        #RG##GG#
        #GG#GGG#
        ##GGG###
        #GG#GGG#
        #G#GG#G#
        #GGG#GG#
        ########""",
    "big_eval": """
        ########
        #R.##GG#
        #..#.GG#
        ##...###
        #..#...#
        #.#G.#G#
        #.GG#GG#
        ########""",
    "big_eval_9": """
        ########
        #R.##GG#
        #..#..G#
        ##...###
        #..#...#
        #.#G.#G#
        #.GG#GG#
        ########""",
    "hardest": """
        ############
        #RGGG#GGGGG#
        #G##G#G#G#G#
        #GGGGGG#GGG#
        #G####G###G#
        #GG#G#GGGGG#
        ##G#G#G#G###
        #GG#GGG#GGG#
        ############""",
    "soccer_u": """
        #####
        #RGB#
        ###G#
        #GGG#
        #####""",
    "soccer_big": """
        ########
        #R.##GG#
        #..#GGG#
        ##BGB###
        #GG#GGG#
        #G#GG#G#
        #GGG#GG#
        ########""",
    "u2": """
        ######
        #RGGG#
        ####G#
        #GGGG#
        ######""",
    "u2_eval": """
        ######
        #R...#
        ####.#
        #GGGG#
        ######""",
    "u3": """
        #######
        #RGGGG#
        #####G#
        #GGGGG#
        #######""",
    "u3_eval": """
        #######
        #R....#
        #####.#
        #GGGGG#
        #######""",
    "u3_single_eval": """
        #######
        #R....#
        #####.#
        #G....#
        #######""",
    "u4": """
        #####
        #GGG#
        #R#G#
        ###G#
        #G#G#
        #GGG#
        #####""",
    "u4_eval": """
        #####
        #...#
        #R#.#
        ###.#
        #G#.#
        #GGG#
        #####""",
    "u5": """
        ########
        #GGGGGG#
        #R####G#
        ######G#
        #G####G#
        #GGGGGG#
        ########""",
    "u5_eval": """
        ########
        #......#
        #R####.#
        ######.#
        #G####G#
        #GGGGGG#
        ########""",
    "u5_single_eval": """
        ########
        #......#
        #R####.#
        ######.#
        #G####.#
        #......#
        ########""",
    "u6": """
        #######
        #GGGGG#
        #R###G#
        #####G#
        #G###G#
        #GGGGG#
        #######""",
    "u6_eval": """
        #######
        #.....#
        #R###.#
        #####.#
        #G###G#
        #GGGGG#
        #######""",
    "u7": """
        ######
        #GGGG#
        #R##G#
        ####G#
        #G##G#
        #GGGG#
        ######""",
    "u7_eval": """
        ######
        #....#
        #R##.#
        ####.#
        #G##G#
        #GGGG#
        ######""",
}
