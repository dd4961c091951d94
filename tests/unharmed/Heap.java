// SPDX-License-Identifier: MIT
import java.util.ArrayList;

class Heap {
    public static void main(String[] words) {
        for (int wave = 1; wave <= 4; wave++) {
            var blocks = new ArrayList<byte[]>();
            for (int i = 0; i < wave * 4000; i++)
                blocks.add(new byte[5000]);
            System.out.println(blocks.size());
        }
        System.gc();
    }
}
